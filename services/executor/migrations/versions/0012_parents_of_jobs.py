"""Adds the parent of a job, which is cancelled with it."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("parent", sa.Text, nullable=False, server_default=""))
    # Those that a cancellation of their parent still reaches.
    op.execute(
        "create index jobs_children on jobs (parent) where parent <> '' and end_time is null and not cancel_requested"
    )


def downgrade() -> None:
    op.execute("drop index jobs_children")
    op.drop_column("jobs", "parent")
