"""Where a derived token comes from."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    # Empty means issued, not derived. Tokens from before this migration are all issued.
    for name in ("agent", "parent_jti", "root_jti"):
        op.add_column("issued_tokens", sa.Column(name, sa.Text, nullable=False, server_default=""))
        op.alter_column("issued_tokens", name, server_default=None)
    op.execute("update issued_tokens set root_jti = jti")
    # Indexes for revocation: the tokens derived from a token, and the tokens of an agent.
    op.create_index("issued_tokens_parent", "issued_tokens", ["parent_jti"], postgresql_where="parent_jti <> ''")
    op.create_index("issued_tokens_root", "issued_tokens", ["root_jti"])
    op.create_index("issued_tokens_agent", "issued_tokens", ["agent", "expires_at"], postgresql_where="agent <> ''")


def downgrade() -> None:
    for name in ("agent", "parent_jti", "root_jti"):
        op.drop_column("issued_tokens", name)
