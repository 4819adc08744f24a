"""Add lifecycle transitions, namespace owners and trust facts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TIMESTAMP

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

NAME = sa.Text(collation="C")
MOMENT = TIMESTAMP(timezone=True)
STAGES = "'submitted', 'sandbox', 'beta', 'ga', 'verified'"
KINDS = "'sandbox_deployment', 'integration_tests', 'regression', 'sla_commitment', 'provider_identity'"


def upgrade() -> None:
    _standing()
    _transitions()
    _ownership()
    _facts()
    _stages()
    _scores()


def _standing() -> None:
    # The covered states of a version, the next one last.
    for table in ("tool_versions", "changes"):
        op.add_column(table, sa.Column("beneath", ARRAY(sa.Text), nullable=False, server_default="{}"))
    op.create_index(
        "versions_on_their_way_out",
        "tool_versions",
        ["state"],
        postgresql_where=sa.text("state in ('deprecated', 'sunset')"),
    )


def _transitions() -> None:
    op.create_table(
        "transitions",
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("tool", NAME, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("verb", sa.Text, nullable=False),
        sa.Column("from_state", sa.Text, nullable=False),
        sa.Column("to_state", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("through", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("time", MOMENT, nullable=False),
    )
    op.create_index("transitions_of_a_tool", "transitions", ["tool", "sequence"])
    op.create_index(
        "transitions_by_request",
        "transitions",
        ["tool", "version", "actor", "request_id"],
        unique=True,
        postgresql_where=sa.text("request_id <> ''"),
    )
    op.execute(
        "insert into transitions select sequence, tool, version, 'register', '', state, registered_by,"
        " registered_through, '', '', create_time from tool_versions"
    )
    _only_grows("transitions")


def _ownership() -> None:
    op.add_column("namespaces", sa.Column("owner", sa.Text))
    op.add_column("namespaces", sa.Column("update_time", MOMENT))
    op.add_column("namespaces", sa.Column("revision", sa.BigInteger, nullable=False, server_default="1"))
    # The registrant of the first version becomes the owner.
    op.execute(
        "update namespaces set update_time = create_time, owner = (select v.registered_by from tool_versions v"
        " join tools t on t.name = v.tool where t.namespace = namespaces.namespace"
        " order by v.create_time, v.sequence limit 1)"
    )
    op.execute("update namespaces set owner = 'operator' where owner is null")
    op.alter_column("namespaces", "owner", nullable=False)
    op.alter_column("namespaces", "update_time", nullable=False)
    op.create_table(
        "namespace_delegates",
        sa.Column("namespace", NAME, sa.ForeignKey("namespaces.namespace"), primary_key=True),
        sa.Column("subject", sa.Text, primary_key=True),
        sa.Column("added_by", sa.Text, nullable=False),
        sa.Column("create_time", MOMENT, nullable=False),
    )


def _facts() -> None:
    of_a_version = ["tool_versions.tool", "tool_versions.version"]
    op.create_table(
        "ratings",
        sa.Column("tool", NAME, primary_key=True),
        sa.Column("version", sa.Text, primary_key=True),
        sa.Column("subject", sa.Text, primary_key=True),
        sa.Column("stars", sa.SmallInteger, sa.CheckConstraint("stars between 1 and 5"), nullable=False),
        sa.Column("comment", sa.Text, nullable=False),
        sa.Column("update_time", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(["tool", "version"], of_a_version),
    )
    op.create_table(
        "security_audits",
        sa.Column("fact_id", sa.Text, primary_key=True),
        sa.Column("tool", NAME, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("level", sa.Text, sa.CheckConstraint("level in ('self_assessed', 'third_party')"), nullable=False),
        sa.Column("passed", sa.Boolean, nullable=False),
        sa.Column("auditor", sa.Text, nullable=False),
        sa.Column("report_url", sa.Text, nullable=False),
        sa.Column("summary", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("time", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(["tool", "version"], of_a_version),
    )
    op.create_table(
        "verifications",
        sa.Column("fact_id", sa.Text, primary_key=True),
        sa.Column("tool", NAME, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, sa.CheckConstraint(f"kind in ({KINDS})"), nullable=False),
        sa.Column("passed", sa.Boolean, nullable=False),
        sa.Column("evidence_url", sa.Text, nullable=False),
        sa.Column("summary", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("time", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(["tool", "version"], of_a_version),
    )
    for table in ("security_audits", "verifications"):
        op.create_index(f"{table}_of_a_version", table, ["tool", "version", "time"])
        op.create_index(
            f"{table}_by_request",
            table,
            ["tool", "version", "actor", "request_id"],
            unique=True,
            postgresql_where=sa.text("request_id <> ''"),
        )
        _only_grows(table)


def _stages() -> None:
    op.create_table(
        "tool_stages",
        sa.Column("tool", NAME, sa.ForeignKey("tools.name"), primary_key=True),
        sa.Column("stage", sa.Text, sa.CheckConstraint(f"stage in ({STAGES})"), nullable=False),
        sa.Column("update_time", MOMENT, nullable=False),
    )
    op.create_table(
        "stage_changes",
        sa.Column("change_id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("tool", NAME, sa.ForeignKey("tools.name"), nullable=False),
        sa.Column("from_stage", sa.Text, nullable=False),
        sa.Column("to_stage", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("time", MOMENT, nullable=False),
    )
    _only_grows("stage_changes")
    op.create_table(
        "revocations",
        sa.Column("tool", NAME, sa.ForeignKey("tools.name"), primary_key=True),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("time", MOMENT, nullable=False),
    )


def _scores() -> None:
    op.create_table(
        "trust_scores",
        sa.Column("tool", NAME, sa.ForeignKey("tools.name"), primary_key=True),
        sa.Column("namespace", NAME, nullable=False),
        # The score, and the score without the provider signal.
        sa.Column("score", sa.Double, nullable=False),
        sa.Column("own", sa.Double, nullable=False),
        sa.Column("components", JSONB, nullable=False),
        sa.Column("compute_time", MOMENT, nullable=False),
    )
    op.create_index("trust_scores_by_namespace", "trust_scores", ["namespace"])
    op.create_index("trust_scores_by_time", "trust_scores", ["compute_time"])


def _only_grows(table: str) -> None:
    """Refuse updates and deletes, because the table is evidence."""
    op.execute(
        f"create function {table}_only_grow() returns trigger language plpgsql as"
        f" $$ begin raise exception 'rows of {table} are never changed'; end $$"
    )
    op.execute(
        f"create trigger {table}_only_grow before update or delete or truncate on {table}"
        f" for each statement execute function {table}_only_grow()"
    )
