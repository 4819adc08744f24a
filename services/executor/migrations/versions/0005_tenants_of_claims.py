"""Adds the tenant to the primary key of claims."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    # Existing claims get the empty tenant. Callers without a tenant get UNKNOWN_OUTCOME for them, so nothing runs
    # twice.
    op.add_column("claims", sa.Column("tenant", sa.Text, nullable=False, server_default=""))
    op.alter_column("claims", "tenant", server_default=None)
    op.drop_constraint("claims_pkey", "claims")
    op.create_primary_key("claims_pkey", "claims", ["tenant", "tool", "subject", "session", "key"])


def downgrade() -> None:
    op.execute("delete from claims where tenant <> ''")
    op.drop_constraint("claims_pkey", "claims")
    op.create_primary_key("claims_pkey", "claims", ["tool", "subject", "session", "key"])
    op.drop_column("claims", "tenant")
