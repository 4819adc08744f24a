"""Whose a key is: the same subject in another tenant has keys of its own."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    # A key from before names no tenant. It stays one of callers without any, whom it answers UNKNOWN_OUTCOME: nothing of theirs runs twice.
    op.add_column("claims", sa.Column("tenant", sa.Text, nullable=False, server_default=""))
    op.alter_column("claims", "tenant", server_default=None)
    op.drop_constraint("claims_pkey", "claims")
    op.create_primary_key("claims_pkey", "claims", ["tenant", "tool", "subject", "session", "key"])


def downgrade() -> None:
    op.execute("delete from claims where tenant <> ''")
    op.drop_constraint("claims_pkey", "claims")
    op.create_primary_key("claims_pkey", "claims", ["tool", "subject", "session", "key"])
    op.drop_column("claims", "tenant")
