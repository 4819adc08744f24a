"""Migrates the schema at start, under an advisory lock: of several replicas one does the work.

An up-to-date schema, which is nearly every start, costs one query. The migration runs in a child process, because the
migration tool would stay in the service's memory.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from pathlib import Path

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

VERSION_TABLE = "schema_version"
_URL = "MIGRATION_URL"
_CURRENT = f"select version_num from {VERSION_TABLE}"  # noqa: S608  (a constant)
_EXISTS = "select to_regclass(:name) is not null"


class MigrationError(Exception):
    """The migration failed."""


async def migrate(engine: AsyncEngine, scripts: Path, *, schema: str) -> None:
    """Bring the service's schema to the newest revision in `scripts`. Safe to call from any number of replicas."""
    async with engine.begin() as connection:
        known = (await connection.execute(text(_EXISTS), {"name": f"{schema}.{VERSION_TABLE}"})).scalar_one()
        current = (await connection.execute(text(_CURRENT))).scalar() if known else None
    if current != _newest(scripts):
        await _upgrade_in_child(engine, scripts, schema)


def _newest(scripts: Path) -> str:
    """Return the newest revision: files are named by their revision, so no migration tool is needed."""
    return max(path.name.split("_")[0] for path in (scripts / "versions").glob("[0-9]*.py"))


async def _upgrade_in_child(engine: AsyncEngine, scripts: Path, schema: str) -> None:
    url = engine.url.render_as_string(hide_password=False)
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "libs.common.sql.migrate", str(scripts), schema),
        # In the environment, which only this user can read; arguments are visible to all.
        env={**os.environ, _URL: url},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, stderr = await child.communicate()
    if child.returncode:
        raise MigrationError(stderr.decode(errors="replace")[-2000:].replace(url, "***"))


def _upgrade(connection: Connection, scripts: Path, schema: str) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.runtime.migration import MigrationContext

    # Held until the transaction ends, so a waiting replica finds the work done.
    connection.execute(text("select pg_advisory_xact_lock(:key)"), {"key": _lock_key(schema)})
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    if context.get_current_revision() == _newest(scripts):
        return
    config = Config()
    # A percent sign begins an interpolation in this option.
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _lock_key(schema: str) -> int:
    return int.from_bytes(hashlib.sha256(f"toolmesh:{schema}".encode()).digest()[:8], "big", signed=True)


def main() -> None:
    """Migrate one schema; run as `python -m libs.common.sql.migrate SCRIPTS SCHEMA` with the URL in the environment."""
    from sqlalchemy import create_engine

    scripts, schema = Path(sys.argv[1]), sys.argv[2]
    engine = create_engine(os.environ[_URL], connect_args={"options": f"-c search_path={schema}"})
    with engine.begin() as connection:
        _upgrade(connection, scripts, schema)
    engine.dispose()


if __name__ == "__main__":
    main()
