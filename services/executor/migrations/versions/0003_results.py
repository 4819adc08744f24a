"""Creates the tables of large results, stored as encrypted pieces."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "results",
        sa.Column("result_id", sa.Text, primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("token_hash", sa.LargeBinary, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("media_type", sa.Text, nullable=False),
        sa.Column("create_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expire_time", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("results_by_end", "results", ["expire_time"])
    op.create_table(
        "result_pieces",
        sa.Column("result_id", sa.Text, sa.ForeignKey("results.result_id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    # Encrypted data cannot be compressed.
    op.execute("alter table result_pieces alter column content set storage external")


def downgrade() -> None:
    op.drop_table("result_pieces")
    op.drop_table("results")
