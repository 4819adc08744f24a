"""Which earlier owners of a key fell silent, and may have had its effect."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("claims", sa.Column("doubted", sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("claims", "doubted")
