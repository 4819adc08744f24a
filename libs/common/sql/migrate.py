"""Migrations at start, under an advisory lock: replicas may start together, and one of them does the work."""

from __future__ import annotations

import hashlib
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

VERSION_TABLE = "schema_version"


async def migrate(engine: AsyncEngine, scripts: Path, *, schema: str) -> None:
    """Bring the service's schema to the newest revision in `scripts`. Safe to call from any number of replicas."""
    async with engine.begin() as connection:
        await connection.run_sync(_upgrade, scripts, schema)


def _upgrade(connection: Connection, scripts: Path, schema: str) -> None:
    # Held until the transaction ends, so a replica that waits here finds the work done.
    connection.execute(text("select pg_advisory_xact_lock(:key)"), {"key": _lock_key(schema)})
    config = Config()
    config.set_main_option("script_location", str(scripts))
    directory = ScriptDirectory.from_config(config)
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    if context.get_current_revision() == directory.get_current_head():
        return
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _lock_key(schema: str) -> int:
    return int.from_bytes(hashlib.sha256(f"toolmesh:{schema}".encode()).digest()[:8], "big", signed=True)
