"""Creates the table of idempotency claims: owner, lease and outcome."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "claims",
        sa.Column("tool", sa.Text, primary_key=True),
        sa.Column("subject", sa.Text, primary_key=True),
        sa.Column("session", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("arguments_digest", sa.Text, nullable=False),
        sa.Column("invocation_id", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("result", sa.LargeBinary),
        sa.Column("error", sa.LargeBinary),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("create_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expire_time", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("state in ('running', 'succeeded', 'failed')", name="claims_state"),
        sa.CheckConstraint("(state = 'succeeded') = (result is not null)", name="claims_result"),
        sa.CheckConstraint("(state = 'failed') = (error is not null)", name="claims_error"),
    )
    op.create_index("claims_by_end", "claims", ["expire_time"])


def downgrade() -> None:
    op.drop_table("claims")
