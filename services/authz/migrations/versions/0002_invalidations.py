"""The feed of cache invalidations, and the revocations in it."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    # One row, locked by every append: sequence numbers become visible in order, so a reader never skips one.
    op.create_table("feed_head", sa.Column("sequence", sa.BigInteger, nullable=False))
    op.execute("create unique index feed_head_only_one on feed_head ((true))")
    op.execute("insert into feed_head values (0)")
    op.create_table(
        "invalidations",
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        # revocation or policy_set
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.text("clock_timestamp()")),
    )
    op.create_table(
        "revocations",
        sa.Column(
            "sequence", sa.BigInteger, sa.ForeignKey("invalidations.sequence"), primary_key=True, autoincrement=False
        ),
        # token, subject or key
        sa.Column("target_kind", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("revoked_by", sa.Text, nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=False),
        # When every token that it applies to has expired.
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("revocations_expires_at", "revocations", ["expires_at"])


def downgrade() -> None:
    op.drop_table("revocations")
    op.drop_table("invalidations")
    op.drop_table("feed_head")
