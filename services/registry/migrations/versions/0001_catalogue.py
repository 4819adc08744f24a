"""Create tools, versions, names and the numbered change log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TIMESTAMP

from libs.common.ids import new_id

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NAME = sa.Text(collation="C")
MOMENT = TIMESTAMP(timezone=True)
STATES = (
    "'draft', 'available', 'disabled', 'requires_setup', 'deferred', 'deprecated', 'sunset', 'retired', 'quarantined'"
)


def upgrade() -> None:
    _counter()
    _tools()
    _versions()
    _changes()


def _counter() -> None:
    counter = op.create_table(
        "change_counter",
        sa.Column(
            "single", sa.Boolean, sa.CheckConstraint("single", name="change_counter_has_one_row"), primary_key=True
        ),
        sa.Column("epoch", sa.Text, nullable=False),
        sa.Column("last", sa.BigInteger, nullable=False),
    )
    # The epoch identifies this database, so that resume tokens of another one are recognised.
    op.bulk_insert(counter, [{"single": True, "epoch": new_id(), "last": 0}])


def _tools() -> None:
    op.create_table(
        "namespaces",
        sa.Column("namespace", NAME, primary_key=True),
        sa.Column("provider", sa.Text, nullable=False),
        sa.Column("create_time", MOMENT, nullable=False),
    )
    op.create_table(
        "tools",
        sa.Column("name", NAME, primary_key=True),
        sa.Column("namespace", NAME, sa.ForeignKey("namespaces.namespace"), nullable=False),
        sa.Column("provider", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("tags", ARRAY(sa.Text), nullable=False),
        sa.Column("latest_version", sa.Text, nullable=False),
        sa.Column("aliases", ARRAY(sa.Text), nullable=False),
        sa.Column("create_time", MOMENT, nullable=False),
        sa.Column("update_time", MOMENT, nullable=False),
    )
    op.create_index("tools_by_namespace", "tools", ["namespace", "name"])
    op.create_index("tools_by_tag", "tools", ["tags"], postgresql_using="gin")
    op.create_table(
        "tool_names",
        sa.Column("name", NAME, primary_key=True),
        sa.Column("tool", NAME, sa.ForeignKey("tools.name"), nullable=False),
    )


def _versions() -> None:
    op.create_table(
        "tool_versions",
        sa.Column("tool", NAME, sa.ForeignKey("tools.name"), primary_key=True),
        sa.Column("version", sa.Text, primary_key=True),
        sa.Column("number", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("manifest", JSONB, nullable=False),
        sa.Column("document", sa.LargeBinary, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("registered_by", sa.Text, nullable=False),
        sa.Column("registered_through", sa.Text, nullable=False),
        sa.Column("create_time", MOMENT, nullable=False),
        sa.Column("state", sa.Text, sa.CheckConstraint(f"state in ({STATES})", name="state_is_known"), nullable=False),
        sa.Column("state_reason", sa.Text, nullable=False),
        sa.Column("deprecation", JSONB),
        sa.Column("update_time", MOMENT, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False, unique=True),
        sa.UniqueConstraint("tool", "number", name="one_version_of_each_number"),
    )


def _changes() -> None:
    op.create_table(
        "changes",
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("tool", NAME, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("state", sa.Text),
        sa.Column("state_reason", sa.Text),
        sa.Column("deprecation", JSONB),
        sa.Column("update_time", MOMENT, nullable=False),
    )
