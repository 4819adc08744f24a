"""Adds the ticket that a job waits for."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("ticket", sa.Text, nullable=False, server_default=""))
    op.add_column("jobs", sa.Column("awaits_ticket", sa.Boolean, nullable=False, server_default=sa.false()))
    op.execute("create index jobs_awaiting on jobs (retry_time) where awaits_ticket and end_time is null")


def downgrade() -> None:
    op.execute("drop index jobs_awaiting")
    for column in ("awaits_ticket", "ticket"):
        op.drop_column("jobs", column)
