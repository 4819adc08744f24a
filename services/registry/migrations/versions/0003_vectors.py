"""The vectors that tools are compared by in meaning, and who is working one out."""

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
