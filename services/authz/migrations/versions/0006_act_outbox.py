"""The outbox of administrative acts: written with each change, delivered to the audit log."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "act_outbox",
        sa.Column("sequence", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("record_id", sa.Text, nullable=False, unique=True),
        sa.Column("form", sa.LargeBinary, nullable=False),
        sa.Column("create_time", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        # Set if the log refused the record, which is kept for inspection.
        sa.Column("refuse_time", sa.DateTime(timezone=True)),
    )


def downgrade() -> None:
    op.drop_table("act_outbox")
