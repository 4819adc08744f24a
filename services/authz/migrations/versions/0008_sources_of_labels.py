"""Labels of sessions know what brought them and what removed them, and the chain of tokens apart from the session."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.drop_constraint("session_labels_pkey", "session_labels", type_="primary")
    for name in ("root_token", "decision", "tool_version", "invocation_id"):
        op.add_column("session_labels", sa.Column(name, sa.Text, nullable=False, server_default=""))
        op.alter_column("session_labels", name, server_default=None)
    op.add_column("session_labels", sa.Column("cleared_at", sa.DateTime(timezone=True)))
    op.add_column("session_labels", sa.Column("cleared_by", sa.Text))
    op.add_column("session_labels", sa.Column("sequence", sa.BigInteger, sa.Identity(always=True), nullable=False))
    op.create_primary_key("session_labels_pkey", "session_labels", ["sequence"])
    # Labels of a chain were rows of their own.
    op.execute("update session_labels set root_token = cast(place as json)->>1 where place like '[\"token\"%'")
    held = {"unique": True, "postgresql_where": sa.text("cleared_at is null")}
    op.create_index("session_labels_held", "session_labels", ["place", "root_token", "label"], **held)
    op.create_index("session_labels_token", "session_labels", ["root_token"])


def downgrade() -> None:
    op.drop_index("session_labels_token")
    op.drop_index("session_labels_held")
    op.drop_constraint("session_labels_pkey", "session_labels", type_="primary")
    op.drop_column("session_labels", "sequence")
    op.execute(
        "delete from session_labels a using session_labels b"
        " where a.place = b.place and a.label = b.label and a.ctid > b.ctid"
    )
    for name in ("root_token", "decision", "tool_version", "invocation_id", "cleared_at", "cleared_by"):
        op.drop_column("session_labels", name)
    op.create_primary_key("session_labels_pkey", "session_labels", ["place", "label"])
