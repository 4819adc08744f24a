"""The tenants of tokens and revocations, so that a tenant administers its own tokens alone."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    # The tenant of a token from before this migration is unknown; empty means that only the operator and callers
    # without
    # a tenant revoke it for others. The default stays, so that replicas of the release before can still write.
    for table in ("issued_tokens", "revocations"):
        op.add_column(table, sa.Column("tenant", sa.Text, nullable=False, server_default=""))
    op.create_index("revocations_tenant", "revocations", ["tenant", sa.text("sequence desc")])


def downgrade() -> None:
    for table in ("issued_tokens", "revocations"):
        op.drop_column(table, "tenant")
