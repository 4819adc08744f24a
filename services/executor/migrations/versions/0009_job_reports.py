"""Adds what tools report to the events of jobs, their questions to jobs, and a table of attached streams."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("job_events", sa.Column("kind", sa.Text, nullable=False, server_default="transition"))
    op.add_column("job_events", sa.Column("report", sa.LargeBinary))
    # Encrypted data cannot be compressed.
    op.execute("alter table job_events alter column report set storage external")
    op.add_column("jobs", sa.Column("reported", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("input_id", sa.Text, nullable=False, server_default=""))
    op.add_column("jobs", sa.Column("input_schema", sa.LargeBinary))
    op.add_column("jobs", sa.Column("answer", sa.LargeBinary))
    op.add_column("jobs", sa.Column("cancel_when_detached", sa.Boolean, nullable=False, server_default=sa.false()))
    op.create_table(
        "job_attachments",
        sa.Column("invocation_id", sa.Text, sa.ForeignKey("jobs.invocation_id", ondelete="CASCADE"), primary_key=True),
        sa.Column("attached_until", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("job_attachments_by_time", "job_attachments", ["attached_until"])


def downgrade() -> None:
    op.drop_table("job_attachments")
    for column in ("cancel_when_detached", "answer", "input_schema", "input_id", "reported"):
        op.drop_column("jobs", column)
    for column in ("report", "kind"):
        op.drop_column("job_events", column)
