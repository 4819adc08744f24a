"""Creates the outbox of audit records and the lease of the delivering process."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "outbox",
        sa.Column("sequence", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("record_id", sa.Text, nullable=False, unique=True),
        sa.Column("fragment", sa.LargeBinary, nullable=False),
        sa.Column("create_time", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("refuse_time", sa.DateTime(timezone=True)),
    )
    op.create_table(
        "outbox_delivery",
        sa.Column("singleton", sa.Boolean, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("singleton", name="outbox_delivery_singleton"),
    )
    op.execute("insert into outbox_delivery values (true, '', now())")


def downgrade() -> None:
    op.drop_table("outbox_delivery")
    op.drop_table("outbox")
