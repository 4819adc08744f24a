"""Creates the tables of jobs and their events."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    time = sa.DateTime(timezone=True)
    op.create_table(
        "jobs",
        sa.Column("invocation_id", sa.Text, primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("session", sa.Text, nullable=False),
        sa.Column("tool", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("arguments_digest", sa.Text, nullable=False),
        sa.Column("tool_version", sa.Text, nullable=False),
        sa.Column("tool_digest", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("priority", sa.SmallInteger, nullable=False),
        sa.Column("request", sa.LargeBinary),
        sa.Column("outcome", sa.LargeBinary),
        sa.Column("failed", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("task_id", sa.Text, nullable=False),
        sa.Column("native_call_id", sa.Text, nullable=False),
        sa.Column("trace_id", sa.Text, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
        sa.Column("losses", sa.Integer, nullable=False, server_default="0"),
        sa.Column("owner", sa.Text, nullable=False, server_default=""),
        sa.Column("executor_id", sa.Text, nullable=False, server_default=""),
        sa.Column("lease_until", time, nullable=False, server_default=sa.func.now()),
        sa.Column("cancel_requested", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("create_time", time, nullable=False),
        sa.Column("retry_time", time, nullable=False),
        sa.Column("start_time", time),
        sa.Column("end_time", time),
        sa.Column("deadline", time, nullable=False),
        sa.Column("expire_time", time, nullable=False),
    )
    op.execute("create unique index jobs_by_key on jobs (tenant, subject, session, tool, key) where key <> ''")
    op.execute("create index jobs_unfinished on jobs (retry_time) where end_time is null")
    op.create_index("jobs_by_owner", "jobs", ["tenant", "subject", "create_time", "invocation_id"])
    op.create_index("jobs_by_expiry", "jobs", ["expire_time"])
    op.execute("create index jobs_succeeded on jobs (tenant, tool_version, end_time) where state = 'succeeded'")
    op.create_table(
        "job_events",
        sa.Column("invocation_id", sa.Text, sa.ForeignKey("jobs.invocation_id", ondelete="CASCADE"), primary_key=True),
        sa.Column("sequence", sa.BigInteger, primary_key=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("create_time", time, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("job_events")
    op.drop_table("jobs")
