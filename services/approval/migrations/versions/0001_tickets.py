"""Tickets."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, INTERVAL, JSONB, TIMESTAMP

revision = "0001"
down_revision = None

MOMENT = TIMESTAMP(timezone=True)
STATES = "'pending', 'approved', 'denied', 'auto_denied', 'canceled', 'redeemed'"


def upgrade() -> None:
    op.create_table(
        "tickets",
        sa.Column("ticket_id", sa.Text(collation="C"), primary_key=True),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("tool_version", sa.Text, nullable=False),
        sa.Column("tool_digest", sa.Text, nullable=False),
        sa.Column("arguments_digest", sa.Text, nullable=False),
        sa.Column("redacted_arguments", sa.LargeBinary, nullable=False),
        sa.Column("preview", sa.LargeBinary, nullable=False),
        sa.Column("requester", JSONB, nullable=False),
        sa.Column("invocation", sa.Text, nullable=False),
        sa.Column("decision", sa.Text, nullable=False),
        sa.Column("policy_set_version", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("escalation_chain", ARRAY(sa.Text), nullable=False),
        sa.Column("escalation_index", sa.Integer, nullable=False),
        sa.Column("quorum", sa.Integer, nullable=False),
        sa.Column("lifetime", INTERVAL, nullable=False),
        sa.Column("verdicts", JSONB, nullable=False),
        sa.Column("create_time", MOMENT, nullable=False),
        sa.Column("expire_time", MOMENT, nullable=False),
        sa.Column("resolve_time", MOMENT),
        sa.Column("redeem_time", MOMENT),
        sa.UniqueConstraint("request_id", name="tickets_request_id_key"),
        sa.CheckConstraint(f"state in ({STATES})", name="tickets_state_is_known"),
        sa.CheckConstraint("(state = 'pending') = (resolve_time is null)", name="tickets_resolved_have_a_time"),
        sa.CheckConstraint("(state = 'redeemed') = (redeem_time is not null)", name="tickets_redeemed_have_a_time"),
    )
    newest = [sa.text("create_time desc"), sa.text("ticket_id desc")]
    op.create_index("tickets_newest", "tickets", newest)
    op.create_index("tickets_newest_of_state", "tickets", ["state", *newest])
    # The query of the sweeper, which usually finds nothing.
    op.create_index("tickets_due", "tickets", ["expire_time"], postgresql_where=sa.text("state = 'pending'"))


def downgrade() -> None:
    op.drop_table("tickets")
