"""Creates the log: records partitioned by shard, the head, stored subtrees, checkpoints and shards.

The migrating role owns the log. The service's role, `audit`, may read, append and move the head; everything else goes
through the functions of 0002, which check their own conditions. Later revisions grant that role access to their own
tables.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None

ROLE = "audit"


def upgrade() -> None:
    _records()
    _head()
    _shards()
    _subtrees()
    _checkpoints()
    _erasures_and_holds()
    _guards()
    _grants()


def _moment(name: str, **options: object) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), **options)


def _by_the_databases_clock(name: str) -> sa.Column[object]:
    # The database clock is shared by all replicas. Evaluated per row, after the wait for the head.
    return _moment(name, nullable=False, server_default=sa.text("clock_timestamp()"))


def _records() -> None:
    # By shard, not by range of sequence: the end of a shard is known only when it closes, and changing the bound of a
    # partition reads all of it. Uniqueness is per shard; each partition has its own constraints.
    op.create_table(
        "records",
        sa.Column("sequence", sa.BigInteger, nullable=False),
        _by_the_databases_clock("log_time"),
        _moment("event_time", nullable=False),
        sa.Column("shard", sa.Integer, nullable=False),
        sa.Column("record_id", sa.Text, nullable=False),
        # Null after erasure.
        sa.Column("canonical", postgresql.BYTEA),
        sa.Column("leaf_hash", postgresql.BYTEA, nullable=False),
        sa.Column("subject", sa.Text),
        sa.Column("tool_version", sa.Text),
        sa.Column("trace_id", sa.Text),
        sa.Column("invocation_id", sa.Text),
        sa.Column("authz_outcome", sa.Text),
        sa.Column("status", sa.Text),
        sa.Column("ticket", sa.Text),
        postgresql_partition_by="list (shard)",
    )
    # With the sequence as second column, a page of one trace, invocation, subject or ticket is read in log order.
    for column in ("trace_id", "invocation_id", "subject", "ticket"):
        op.create_index(
            f"records_{column}", "records", [column, "sequence"], postgresql_where=sa.text(f"{column} is not null")
        )
    op.create_index("records_event_time", "records", ["event_time"])


def _head() -> None:
    op.create_table(
        "tree_head",
        sa.Column("log_id", sa.Text, primary_key=True),
        sa.Column("shard", sa.Integer, nullable=False),
        sa.Column("first_sequence", sa.BigInteger, nullable=False),
        # Size of the whole log. The hashes are those of the open shard's tree.
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("hashes", postgresql.ARRAY(postgresql.BYTEA), nullable=False),
        _moment("open_time", nullable=False),
    )
    # One log per database. Its id is generated, so another database is never mistaken for it.
    op.execute("create unique index tree_head_only_one on tree_head ((true))")
    op.execute("insert into tree_head values (gen_random_uuid()::text, 0, 0, 0, '{}', clock_timestamp())")


def _shards() -> None:
    op.create_table(
        "shards",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("first_sequence", sa.BigInteger, nullable=False, unique=True),
        _moment("open_time", nullable=False),
        # Null while the shard is open; the head has these values then.
        sa.Column("size", sa.BigInteger),
        sa.Column("root_hash", postgresql.BYTEA),
        _moment("close_time"),
        _moment("archive_time"),
        sa.Column("manifest_digest", sa.Text),
        _moment("drop_time"),
    )
    op.execute("insert into shards (number, first_sequence, open_time) select shard, size, open_time from tree_head")


def _subtrees() -> None:
    # Roots of complete subtrees of 256, 65,536, ... leaves, stored by the commit that completes them.
    op.create_table(
        "subtrees",
        sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("level", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("place", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("hash", postgresql.BYTEA, nullable=False),
    )


def _checkpoints() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("size", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("root_hash", postgresql.BYTEA, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        _moment("sign_time", nullable=False),
    )
    op.create_table(
        "cosignatures",
        sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("size", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("key_id", sa.Text, primary_key=True),
        sa.Column("line", sa.Text, nullable=False),
        _by_the_databases_clock("add_time"),
        sa.ForeignKeyConstraint(["shard", "size"], ["checkpoints.shard", "checkpoints.size"]),
    )


def _erasures_and_holds() -> None:
    op.create_table(
        "erasures",
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("erased_by", sa.BigInteger, nullable=False),
        _by_the_databases_clock("erase_time"),
    )
    op.create_table(
        "legal_holds",
        sa.Column("hold_id", sa.Text, primary_key=True),
        sa.Column("first_sequence", sa.BigInteger, nullable=False),
        # Null: no end.
        sa.Column("end_sequence", sa.BigInteger),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("placed_by", sa.Text, nullable=False),
        _by_the_databases_clock("place_time"),
        _moment("release_time"),
    )


def _guards() -> None:
    """Create triggers that protect the log from mistakes of its owner, whom privileges do not stop."""
    op.execute(
        """
        create function refuse_change() returns trigger language plpgsql as $$
        begin
            raise exception 'the log only grows: % on % is refused', tg_op, tg_table_name
                using errcode = 'insufficient_privilege';
        end
        $$
        """
    )
    op.execute(
        """
        create function refuse_unless_erased() returns trigger language plpgsql as $$
        begin
            if new.canonical is null
                and (new.shard, new.sequence, new.record_id, new.leaf_hash, new.log_time)
                    is not distinct from (old.shard, old.sequence, old.record_id, old.leaf_hash, old.log_time)
                and exists (select from erasures where sequence = old.sequence)
            then
                return new;
            end if;
            raise exception 'the log only grows: record % stays as it is', old.sequence
                using errcode = 'insufficient_privilege';
        end
        $$
        """
    )
    for table in ("subtrees", "checkpoints", "cosignatures", "erasures"):
        _refuse(table, "update or delete or truncate")
    for table in ("records", "tree_head", "shards", "legal_holds"):
        _refuse(table, "delete or truncate")
    # The condition is evaluated without calling the function, so normal updates pay nothing.
    op.execute(
        """
        create trigger tree_head_goes_forward before update on tree_head for each row when (
            new.log_id <> old.log_id or new.size < old.size or new.shard < old.shard
            or new.first_sequence < old.first_sequence
        ) execute function refuse_change()
        """
    )
    op.execute("alter table tree_head enable always trigger tree_head_goes_forward")


def _refuse(table: str, events: str) -> None:
    op.execute(
        f"create trigger {table}_stay before {events} on {table} for each statement execute function refuse_change()"
    )
    op.execute(f"alter table {table} enable always trigger {table}_stay")


def _grants() -> None:
    op.execute(f"grant usage on schema audit to {ROLE}")
    op.execute(f"grant select, insert on records, subtrees, checkpoints, cosignatures to {ROLE}")
    op.execute(f"grant select on tree_head, shards, erasures, legal_holds, schema_version to {ROLE}")
    op.execute(f"grant update (size, hashes) on tree_head to {ROLE}")
