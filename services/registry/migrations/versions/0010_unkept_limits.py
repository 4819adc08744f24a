"""Add the limits that the sandboxes of an executor do not keep."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # With a default, because replicas of the build before insert rows while they are replaced.
    op.add_column("executors", sa.Column("unkept", ARRAY(sa.Text), nullable=False, server_default="{}"))


def downgrade() -> None:
    op.drop_column("executors", "unkept")
