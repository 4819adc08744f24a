"""Where in the log a revocation began, so that taking it back releases what it took out of use and nothing else."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Of those that were made before nothing is known; they are taken back with everything, as they were to be.
    op.add_column("revocations", sa.Column("sequence", sa.BigInteger, nullable=False, server_default="0"))
