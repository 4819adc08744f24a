"""The shared code of every service's migrations/env.py."""

from __future__ import annotations

from alembic import context

from libs.common.sql.schema import VERSION_TABLE


def run() -> None:
    """Run the pending revisions on the connection that `migrate` holds, inside its transaction."""
    connection = context.config.attributes["connection"]
    context.configure(connection=connection, version_table=VERSION_TABLE)
    with context.begin_transaction():
        context.run_migrations()
