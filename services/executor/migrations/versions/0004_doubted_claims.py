"""Adds the former owners of a claim whose outcome is unknown."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("claims", sa.Column("doubted", sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("claims", "doubted")
