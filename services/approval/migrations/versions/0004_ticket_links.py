"""Links of notifications, and an index of open tickets by the groups that they ask."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, TIMESTAMP

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "ticket_links",
        # SHA-256 of the token, which itself is in the message only.
        sa.Column("token_digest", sa.LargeBinary, primary_key=True),
        sa.Column("ticket_id", sa.Text(collation="C"), sa.ForeignKey("tickets.ticket_id"), nullable=False),
        sa.Column("approver_group", sa.Text, nullable=False),
        sa.Column("used_by", ARRAY(sa.Text), nullable=False, server_default=sa.text("'{}'")),
        sa.Column("expire_time", TIMESTAMP(timezone=True), nullable=False),
    )
    op.create_index("ticket_links_old", "ticket_links", ["expire_time"])
    # A column instead of the expression, because PostgreSQL then knows how many tickets ask a group.
    asked = sa.Computed("escalation_chain[1:escalation_index + 1]", persisted=True)
    op.add_column("tickets", sa.Column("asked_groups", ARRAY(sa.Text), asked))
    is_open = sa.text("state in ('pending', 'approved')")
    op.create_index(
        "tickets_open_by_group", "tickets", ["asked_groups"], postgresql_using="gin", postgresql_where=is_open
    )


def downgrade() -> None:
    op.drop_column("tickets", "asked_groups")
    op.drop_table("ticket_links")
