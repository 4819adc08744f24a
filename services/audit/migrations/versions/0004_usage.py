"""Creates the tables of usage: counts by day, and the counting position."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"

_KEPT_APART = ("tool", "version", "tenant", "subject", "task")
_OUTCOMES = ("succeeded", "failed", "timed_out", "canceled", "not_started", "refused", "replayed")


def upgrade() -> None:
    op.create_table(
        "usage_cells",
        sa.Column("day", sa.Date, primary_key=True),
        # A digest of rollup, day and dimensions, which together are too long for an index.
        sa.Column("cell", postgresql.BYTEA, primary_key=True),
        sa.Column("rollup", sa.Text, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in _KEPT_APART),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in _OUTCOMES),
        sa.Column("reasons", postgresql.JSONB, nullable=False),
        sa.Column("cost_micros", sa.Numeric, nullable=False),
        sa.Column("timed", sa.BigInteger, nullable=False),
        sa.Column("latency_sum_us", sa.Numeric, nullable=False),
        sa.Column("latency_max_us", sa.BigInteger, nullable=False),
        sa.Column("latency", postgresql.BYTEA, nullable=False),
        sa.Column("first_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_time", sa.DateTime(timezone=True), nullable=False),
        # Rows are updated often and no index contains the changing columns: with free space on the page, updates stay
        # heap-only.
        postgresql_with={"fillfactor": 70},
    )
    op.create_index("usage_cells_by_day", "usage_cells", ["rollup", "day"])
    for rollup, columns in (
        ("tool", ["tool", "version", "day"]),
        ("tenant", ["tenant", "day"]),
        ("caller", ["subject", "day"]),
        ("caller", ["tool", "version", "day"]),
        ("task", ["task", "day"]),
        ("task", ["subject", "day"]),
    ):
        op.create_index(
            f"usage_cells_{rollup}_by_{columns[0]}",
            "usage_cells",
            columns,
            postgresql_where=sa.text(f"rollup = '{rollup}'"),
        )
    op.create_table(
        "usage_pages",
        sa.Column("rollup", sa.Text, primary_key=True),
        sa.Column("day", sa.Date, primary_key=True),
        sa.Column("cells", sa.Integer, nullable=False),
    )
    op.create_table(
        "usage_position",
        # The first sequence that was not counted.
        sa.Column("counted", sa.BigInteger, nullable=False),
    )
    op.execute("create unique index usage_position_only_one on usage_position ((true))")
    op.execute("insert into usage_position (counted) values (0)")
    # If another role owns the tables, the service's role needs these grants.
    op.execute(
        """
        do $$ begin
            if exists (select from pg_roles where rolname = 'audit') then
                grant select, insert, update, delete on usage_cells, usage_pages to audit;
                grant select, update on usage_position to audit;
            end if;
        end $$
        """
    )
