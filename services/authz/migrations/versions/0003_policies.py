"""Policy sets and their activations, the journal of decisions, and session labels."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "policy_sets",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("version", sa.Text, nullable=False, unique=True),
        sa.Column("policy_count", sa.Integer, nullable=False),
        sa.Column("comment", sa.Text, nullable=False),
        sa.Column("put_by", sa.Text, nullable=False),
        sa.Column("put_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "policy_documents",
        sa.Column("set_number", sa.BigInteger, sa.ForeignKey("policy_sets.number"), primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("text", sa.Text, nullable=False),
    )
    # The last row is the active set; `previous` is the activation before it, for rollbacks.
    op.create_table(
        "activations",
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("set_number", sa.BigInteger, sa.ForeignKey("policy_sets.number"), nullable=False),
        sa.Column("previous", sa.BigInteger, sa.ForeignKey("activations.sequence")),
        sa.Column("activated_by", sa.Text, nullable=False),
        sa.Column("activated_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("activations_set_number", "activations", ["set_number"])
    op.create_table(
        "decisions",
        sa.Column("sequence", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("decision_id", sa.Text, nullable=False, unique=True),
        sa.Column("question", postgresql.JSONB, nullable=False),
        sa.Column("answer", postgresql.JSONB, nullable=False),
        # Arguments, only where a policy read them, and only under a key that is not in the database.
        sa.Column("sealed", sa.LargeBinary),
    )
    op.create_table(
        "session_labels",
        sa.Column("place", sa.Text, primary_key=True),
        sa.Column("label", sa.Text, primary_key=True),
        sa.Column("added_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.text("clock_timestamp()")),
    )


def downgrade() -> None:
    for name in ("session_labels", "decisions", "activations", "policy_documents", "policy_sets"):
        op.drop_table(name)
