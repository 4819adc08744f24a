"""Adds what is needed to resolve and to settle keys: prepared results, audit records, names and the unknown state."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_STATES = "state in ('running', 'succeeded', 'failed', 'unknown')"
_FORMER_STATES = "state in ('running', 'succeeded', 'failed')"


def upgrade() -> None:
    _add("losses", sa.Integer, "0")
    _add("volumes_only", sa.Boolean, "false")
    _add("prepared_by", sa.Text, "")
    _add("prepared_volume", sa.Text, "")
    _add("record_id", sa.Text, "")
    # Existing keys get a random name.
    _add("key_id", sa.Text, sa.text("gen_random_uuid()::text"))
    op.add_column("claims", sa.Column("prepared", sa.LargeBinary))
    op.add_column("claims", sa.Column("record", sa.LargeBinary))
    _replace_check("claims_state", _STATES)
    _replace_check("claims_error", "(state in ('failed', 'unknown')) = (error is not null)")
    op.create_index("claims_by_key_id", "claims", ["key_id"])
    unsettled = sa.text("state in ('running', 'unknown')")
    op.create_index("claims_unsettled", "claims", ["create_time"], postgresql_where=unsettled)


def downgrade() -> None:
    op.execute("update claims set state = 'failed' where state = 'unknown'")
    op.drop_index("claims_unsettled", "claims")
    op.drop_index("claims_by_key_id", "claims")
    _replace_check("claims_error", "(state = 'failed') = (error is not null)")
    _replace_check("claims_state", _FORMER_STATES)
    for column in ("losses", "volumes_only", "prepared", "prepared_by", "prepared_volume", "record", "record_id"):
        op.drop_column("claims", column)
    op.drop_column("claims", "key_id")


def _add(name, kind, default) -> None:  # type: ignore[no-untyped-def]
    op.add_column("claims", sa.Column(name, kind, nullable=False, server_default=default))


def _replace_check(name: str, condition: str) -> None:
    op.drop_constraint(name, "claims")
    op.create_check_constraint(name, "claims", condition)
