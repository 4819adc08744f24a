"""Add the circuits of external services to the announcements of executors."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # With a default, because replicas of the build before insert rows while they are replaced.
    op.add_column("executors", sa.Column("circuits", JSONB, nullable=False, server_default="[]"))


def downgrade() -> None:
    op.drop_column("executors", "circuits")
