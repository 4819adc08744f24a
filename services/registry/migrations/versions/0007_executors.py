"""Add the announcements of executors: what each of them can run, until its lease ends."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "executors",
        sa.Column("instance", sa.Text, primary_key=True),
        sa.Column("process_id", sa.Text, nullable=False),
        sa.Column("runners", ARRAY(sa.Text), nullable=False),
        sa.Column("tiers", ARRAY(sa.Text), nullable=False),
        sa.Column("packs", ARRAY(sa.Text), nullable=False),
        sa.Column("expire_time", sa.TIMESTAMP(timezone=True), nullable=False),
    )
