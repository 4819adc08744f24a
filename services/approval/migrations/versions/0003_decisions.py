"""Decisions about tickets: votes, escalation, redemption, notifications, and the outbox of their audit records."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TIMESTAMP

revision = "0003"
down_revision = "0002"

MOMENT = TIMESTAMP(timezone=True)
STATES = "'pending', 'approved', 'denied', 'auto_denied', 'canceled', 'redeemed', 'expired'"
OPEN = "state in ('pending', 'approved')"


def upgrade() -> None:
    empty = sa.text("''")
    for column in (
        sa.Column("call_digest", sa.Text, nullable=False, server_default=empty),
        sa.Column("risk", JSONB, nullable=False, server_default=sa.text("'{}'")),
        sa.Column("policies", ARRAY(sa.Text), nullable=False, server_default=sa.text("'{}'")),
        sa.Column("reason_required", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("steps", JSONB, nullable=False, server_default=sa.text("'[]'")),
        sa.Column("escalate_times", ARRAY(MOMENT), nullable=False, server_default=sa.text("'{}'")),
        sa.Column("next_time", MOMENT),
        sa.Column("approval_expire_time", MOMENT),
        sa.Column("redemption_id", sa.Text, nullable=False, server_default=empty),
        sa.Column("redeem_invocation", sa.Text, nullable=False, server_default=empty),
        sa.Column("override", JSONB),
        sa.Column("update_time", MOMENT, nullable=False, server_default=sa.func.clock_timestamp()),
    ):
        op.add_column("tickets", column)
    op.alter_column("tickets", "lifetime", nullable=True)
    op.drop_constraint("tickets_state_is_known", "tickets")
    op.create_check_constraint("tickets_state_is_known", "tickets", f"state in ({STATES})")
    op.execute("update tickets set next_time = expire_time where state = 'pending'")
    op.drop_index("tickets_due", "tickets")
    op.create_index("tickets_due", "tickets", ["next_time"], postgresql_where=sa.text("next_time is not null"))
    op.create_index("tickets_changed", "tickets", ["update_time"])
    of_requester = ["tenant", sa.text("(requester ->> 'subject')")]
    op.create_index(
        "tickets_open_of_requester", "tickets", of_requester, postgresql_where=sa.text("next_time is not null")
    )
    # One open ticket for each call, so that a call that is sent again does not ask the approvers again.
    one_open = sa.text(f"{OPEN} and call_digest <> ''")
    op.create_index("tickets_open_call", "tickets", ["call_digest"], unique=True, postgresql_where=one_open)
    op.create_table(
        "act_outbox",
        sa.Column("sequence", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("record_id", sa.Text, nullable=False, unique=True),
        sa.Column("form", sa.LargeBinary, nullable=False),
        sa.Column("create_time", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        # Set if the log refused the record, which is kept for inspection.
        sa.Column("refuse_time", sa.DateTime(timezone=True)),
    )
    op.create_table(
        "notifications",
        # One row for each group that a ticket asks, so that each escalation is notified once.
        sa.Column("ticket_id", sa.Text(collation="C"), sa.ForeignKey("tickets.ticket_id"), primary_key=True),
        sa.Column("step", sa.Integer, primary_key=True),
        sa.Column("channel", sa.Text, primary_key=True),
        sa.Column("approver_group", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("due_time", MOMENT),
        sa.Column("sent_time", MOMENT),
        sa.Column("create_time", MOMENT, nullable=False, server_default=sa.func.clock_timestamp()),
    )
    op.create_index(
        "notifications_due", "notifications", ["due_time"], postgresql_where=sa.text("due_time is not null")
    )
    op.create_index("notifications_sent", "notifications", ["channel", "approver_group", "sent_time"])


def downgrade() -> None:
    op.drop_table("notifications")
    op.drop_table("act_outbox")
    op.drop_index("tickets_due", "tickets")
    op.create_index("tickets_due", "tickets", ["expire_time"], postgresql_where=sa.text("state = 'pending'"))
    op.drop_constraint("tickets_state_is_known", "tickets")
    for name in (
        *("call_digest", "risk", "policies", "reason_required", "steps", "escalate_times", "next_time"),
        *("approval_expire_time", "redemption_id", "redeem_invocation", "override", "update_time"),
    ):
        op.drop_column("tickets", name)
