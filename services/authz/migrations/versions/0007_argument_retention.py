"""An index by time of the decisions with sealed arguments, which are deleted after some days."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_index(
        "decisions_sealed_time",
        "decisions",
        [sa.text("((answer->>'decide_time')::float8)")],
        postgresql_where=sa.text("sealed is not null"),
    )


def downgrade() -> None:
    op.drop_index("decisions_sealed_time")
