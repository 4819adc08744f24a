"""Add the first change of a revocation, so that a reinstatement releases only versions that it quarantined."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Unknown for earlier revocations; reinstating those releases all versions, as before.
    op.add_column("revocations", sa.Column("sequence", sa.BigInteger, nullable=False, server_default="0"))
