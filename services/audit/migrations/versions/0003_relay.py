"""Creates the table of relay positions, one row per sink."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "relay_positions",
        sa.Column("sink", sa.Text, primary_key=True),
        # The first sequence that the sink is not known to have.
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.Text),
        sa.Column("moved_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.text("clock_timestamp()")),
    )
    op.execute("grant select, insert, update on relay_positions to audit")
