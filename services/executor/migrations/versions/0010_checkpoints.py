"""Creates the tables of checkpoints and callback deliveries, and what jobs need to be resumed and reported."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    time = sa.DateTime(timezone=True)
    op.add_column("jobs", sa.Column("resumable_request", sa.LargeBinary))
    op.add_column("jobs", sa.Column("resumed_from", sa.Text, nullable=False, server_default=""))
    op.add_column("jobs", sa.Column("callback", sa.LargeBinary))
    op.create_table(
        "checkpoints",
        sa.Column("invocation_id", sa.Text, sa.ForeignKey("jobs.invocation_id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("tool_digest", sa.Text, nullable=False),
        sa.Column("state_bytes", sa.BigInteger, nullable=False),
        sa.Column("stored_bytes", sa.BigInteger, nullable=False),
        sa.Column("parent_number", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("create_time", time, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    op.create_index("checkpoints_by_tenant", "checkpoints", ["tenant"], postgresql_include=["stored_bytes"])
    # Encrypted data cannot be compressed.
    op.execute("alter table checkpoints alter column content set storage external")
    op.create_table(
        "callback_deliveries",
        sa.Column("invocation_id", sa.Text, primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("callback", sa.LargeBinary, nullable=False),
        sa.Column("status", sa.Text, nullable=False, server_default="pending"),
        sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
        sa.Column("detail", sa.Text, nullable=False, server_default=""),
        sa.Column("owner", sa.Text, nullable=False, server_default=""),
        sa.Column("end_time", time, nullable=False),
        sa.Column("try_time", time),
        sa.Column("next_time", time, nullable=False),
        sa.Column("expire_time", time, nullable=False),
    )
    op.execute("create index callback_deliveries_due on callback_deliveries (next_time) where status = 'pending'")
    op.create_index(
        "callback_deliveries_by_owner", "callback_deliveries", ["tenant", "subject", "end_time", "invocation_id"]
    )
    op.create_index("callback_deliveries_by_end", "callback_deliveries", ["expire_time"])


def downgrade() -> None:
    op.drop_table("callback_deliveries")
    op.drop_table("checkpoints")
    for column in ("callback", "resumed_from", "resumable_request"):
        op.drop_column("jobs", column)
