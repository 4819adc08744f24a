"""Creates the table of tools' logs."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "tool_logs",
        sa.Column("sequence", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("invocation_id", sa.Text, nullable=False),
        sa.Column("tool", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("lines", sa.LargeBinary, nullable=False),
        sa.Column("omitted", sa.BigInteger, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("create_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expire_time", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("tool_logs_by_tool", "tool_logs", ["tool", "sequence"])
    op.create_index("tool_logs_by_invocation", "tool_logs", ["invocation_id"])
    op.create_index("tool_logs_by_end", "tool_logs", ["expire_time"])
    # Encrypted data cannot be compressed.
    op.execute("alter table tool_logs alter column lines set storage external")


def downgrade() -> None:
    op.drop_table("tool_logs")
