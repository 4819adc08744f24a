"""The log: its records and the head of its tree."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "records",
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("record_id", sa.Text, nullable=False),
        sa.Column("canonical", postgresql.BYTEA, nullable=False),
        sa.Column("leaf_hash", postgresql.BYTEA, nullable=False),
        # By the database's clock, which all replicas share. Taken row by row, after the wait for the head.
        sa.Column("log_time", sa.DateTime(timezone=True), nullable=False, server_default=sa.text("clock_timestamp()")),
        sa.Column("event_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("subject", sa.Text),
        sa.Column("tool_version", sa.Text),
        sa.Column("trace_id", sa.Text),
        sa.Column("invocation_id", sa.Text),
        sa.Column("authz_outcome", sa.Text),
        sa.Column("status", sa.Text),
        sa.Column("ticket", sa.Text),
        sa.UniqueConstraint("record_id", name="records_record_id_key"),
    )
    # With the sequence behind the value, a page of one trace, invocation, subject or ticket is read in log order.
    for column in ("trace_id", "invocation_id", "subject", "ticket"):
        op.create_index(
            f"records_{column}", "records", [column, "sequence"], postgresql_where=sa.text(f"{column} is not null")
        )
    op.create_index("records_event_time", "records", ["event_time"])
    op.create_table(
        "tree_head",
        sa.Column("log_id", sa.Text, primary_key=True),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("hashes", postgresql.ARRAY(postgresql.BYTEA), nullable=False),
    )
    # There is one log in a database, and its id is made with it: a second database is never taken for the first.
    op.execute("create unique index tree_head_only_one on tree_head ((true))")
    op.execute("insert into tree_head (log_id, size, hashes) values (gen_random_uuid()::text, 0, '{}')")
    op.execute(
        """
        create function refuse_change() returns trigger language plpgsql as $$
        begin
            raise exception 'the log only grows: % on % is refused', tg_op, tg_table_name
                using errcode = 'insufficient_privilege';
        end $$
        """
    )
    # Always, so that a session in replication mode is refused as well.
    op.execute(
        """
        create trigger records_are_final before update or delete or truncate on records
            for each statement execute function refuse_change()
        """
    )
    op.execute("alter table records enable always trigger records_are_final")
    op.execute(
        """
        create trigger tree_head_stays before delete or truncate on tree_head
            for each statement execute function refuse_change()
        """
    )
    op.execute("alter table tree_head enable always trigger tree_head_stays")
