"""Add scan warnings and an index for names that look alike."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

NAME = sa.Text(collation="C")


def upgrade() -> None:
    op.create_table(
        "version_warnings",
        sa.Column("tool", NAME, primary_key=True),
        sa.Column("version", sa.Text, primary_key=True),
        sa.Column("warnings", JSONB, nullable=False),
        sa.ForeignKeyConstraint(
            ["tool", "version"], ["tool_versions.tool", "tool_versions.version"], ondelete="CASCADE"
        ),
    )
