"""Add generated columns for namespace, id and skeleton of names and aliases, so that similar names use an index."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

TOOL_ID = "split_part(name, '.', 2)"
# The same as `name_skeleton` in the domain.
SKELETON = f"translate(replace(replace({TOOL_ID}, 'rn', 'm'), 'vv', 'w'), '01', 'ol')"


def upgrade() -> None:
    for column, worked_out in (
        ("namespace", "split_part(name, '.', 1)"),
        ("tool_id", TOOL_ID),
        ("skeleton", SKELETON),
    ):
        op.execute(f'alter table tool_names add {column} text collate "C" generated always as ({worked_out}) stored')
    op.create_index("tool_names_as_read", "tool_names", ["skeleton"])
