"""Add the pairs of names that are alike, so that readers of either tool are warned."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

NAME = sa.Text(collation="C")


def upgrade() -> None:
    op.create_table(
        "alike_names",
        sa.Column("sequence", sa.BigInteger, sa.Identity(always=True), nullable=False, unique=True),
        sa.Column("newer", NAME, primary_key=True),
        sa.Column("older", NAME, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("alike_names")
