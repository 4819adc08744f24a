"""The tenant of a ticket, so that a tenant lists its own tickets."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    # Generated, so that it cannot differ from the requester, also for tickets from before this migration.
    tenant = sa.Computed("requester ->> 'tenant'", persisted=True)
    op.add_column("tickets", sa.Column("tenant", sa.Text, tenant))
    newest = [sa.text("create_time desc"), sa.text("ticket_id desc")]
    op.create_index("tickets_newest_of_tenant", "tickets", ["tenant", *newest])
    op.create_index("tickets_newest_of_tenant_and_state", "tickets", ["tenant", "state", *newest])


def downgrade() -> None:
    op.drop_column("tickets", "tenant")
