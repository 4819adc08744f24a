"""Add the upstreams: servers outside the mesh, and what became of their tools."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "upstreams",
        # Compared by bytes on every machine, because pages are in this order.
        sa.Column("upstream_id", sa.Text(collation="C"), primary_key=True),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("document", sa.LargeBinary, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("upstreams")
