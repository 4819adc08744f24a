"""Add tool vectors with leases."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TIMESTAMP

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tool_vectors",
        sa.Column("digest", sa.Text, primary_key=True),
        sa.Column("model", sa.Text, primary_key=True),
        sa.Column("vector", sa.LargeBinary),
        sa.Column("leased_until", TIMESTAMP(timezone=True), nullable=False),
    )
