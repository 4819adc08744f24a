"""The ledger of issued tokens."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "issued_tokens",
        sa.Column("jti", sa.Text, primary_key=True),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("tier", sa.Text, nullable=False),
        sa.Column("issued_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kid", sa.Text, nullable=False),
        sa.Column("scopes", postgresql.ARRAY(sa.Text), nullable=False),
        sa.Column("tools", postgresql.JSONB, nullable=False),
    )
    # Indexes for revocation: the tokens of a subject, and the unexpired tokens.
    op.create_index("issued_tokens_subject", "issued_tokens", ["subject", "expires_at"])
    op.create_index("issued_tokens_kid", "issued_tokens", ["kid", "expires_at"])


def downgrade() -> None:
    op.drop_table("issued_tokens")
