"""Migrates the schema of one service, in a process of its own: `python -m services.<name>.migrations`.

The role that migrates owns the tables; the service that works with them never gets its credentials. A cluster runs the
command as a job before it rolls out a build, a local mesh before it starts the service. An up-to-date schema, which is
nearly every start, costs one query.
"""

from __future__ import annotations

import hashlib
import sys
from typing import TYPE_CHECKING

from pydantic import Field
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError

from libs.common.runtime.setting_types import PostgresUrl
from libs.common.runtime.settings import EnvironmentSettings, SettingsError, load
from libs.common.sql.schema import (
    LOCATE,
    VERSION_TABLE,
    SchemaError,
    SchemaProblem,
    ServiceSchema,
    missing,
    require_not_newer,
    unreachable,
)

if TYPE_CHECKING:
    from sqlalchemy import Engine


class MigrationSettings(EnvironmentSettings):
    """The settings of a migration."""

    # Another name than the service's own: a service that is given it refuses to start.
    migration_database_url: PostgresUrl = Field(
        description="Database URL of the role that owns the service's schema. No service accepts it."
    )


def run_migration(schema: ServiceSchema) -> None:
    """Migrate and exit: with 0 if the schema is the newest, 1 if it cannot be, 2 for wrong settings.

    With the argument `wait` it only waits until another process has done so, as the service's own role.
    """
    if sys.argv[1:] == ["wait"]:
        from libs.common.sql.wait import run_wait

        run_wait(schema)
        return
    try:
        settings = load(MigrationSettings)
        previous = migrate(settings.migration_database_url, schema)
    except SettingsError as error:
        _exit(2, *(f"{schema.name} migrations: {problem}" for problem in error.problems))
    except SchemaError as error:
        _exit(1, f"{schema.name} migrations: {error}")
    if previous is not None and previous > schema.newest:
        sys.stdout.write(f"{schema.name} migrations: newer than this build, which works on it, at {previous}\n")
    elif previous == schema.newest:
        sys.stdout.write(f"{schema.name} migrations: up to date at {schema.newest}\n")
    else:
        sys.stdout.write(f"{schema.name} migrations: from {previous or 'none'} to {schema.newest}\n")


def migrate(url: str, schema: ServiceSchema) -> str | None:
    """Bring a schema to the newest revision and return the one before, None if there was none. Raises SchemaError.

    A newer schema on which this build works stays as it is. All of it is one transaction under an advisory lock: any
    number of processes may run it together.
    """
    engine = create_engine(
        url.replace("postgresql://", "postgresql+psycopg://", 1),
        connect_args={
            "options": f"-c search_path={schema.name}",
            "connect_timeout": 10,
            "application_name": f"toolmesh-{schema.name}-migrations",
        },
    )
    try:
        with _connect(engine) as connection:
            return _migrate(connection, schema)
    finally:
        engine.dispose()


def _connect(engine: Engine) -> Connection:
    try:
        return engine.connect()
    except DBAPIError as error:
        raise unreachable(engine.url, error.orig) from None


def _migrate(connection: Connection, schema: ServiceSchema) -> str | None:
    try:
        with connection.begin():
            return _upgrade_locked(connection, schema)
    except DBAPIError as error:
        # The first line alone: the others quote the statement and its values.
        reason = str(error.orig).partition("\n")[0]
        raise SchemaError(
            SchemaProblem.MIGRATION_FAILED,
            f"the migration of schema {schema.name} failed and changed nothing: {reason}",
        ) from None


def _upgrade_locked(connection: Connection, schema: ServiceSchema) -> str | None:
    found = connection.exec_driver_sql(LOCATE, {"schema": schema.name}).one()
    if not found.exists:
        raise missing(schema, found.database)
    # Held until the transaction ends, so a process that waits finds the work done.
    connection.execute(text("select pg_advisory_xact_lock(:key)"), {"key": _lock_key(schema.name)})
    # Read again: another process may have migrated meanwhile.
    found = connection.exec_driver_sql(LOCATE, {"schema": schema.name}).one()
    current = _current(connection, schema)
    if schema.works_on(current, found.oldest):
        return current
    require_not_newer(schema, current)
    if current != schema.newest:
        _upgrade(connection, schema)
    if found.oldest != (schema.oldest or None):
        connection.exec_driver_sql(f"comment on table {schema.name}.{VERSION_TABLE} is '{schema.oldest}'")
    return current


def _current(connection: Connection, schema: ServiceSchema) -> str | None:
    table = f"{schema.name}.{VERSION_TABLE}"
    if not connection.scalar(text("select to_regclass(:table) is not null"), {"table": table}):
        return None
    found: str | None = connection.scalar(text(f"select version_num from {table}"))  # noqa: S608  (a constant)
    return found


def _upgrade(connection: Connection, schema: ServiceSchema) -> None:
    # Imported on demand: most runs find nothing to do.
    from alembic import command
    from alembic.config import Config

    config = Config()
    # A percent sign begins an interpolation in this option.
    config.set_main_option("script_location", str(schema.folder).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _lock_key(schema: str) -> int:
    return int.from_bytes(hashlib.sha256(f"toolmesh:{schema}".encode()).digest()[:8], "big", signed=True)


def _exit(code: int, *lines: str) -> None:
    for line in lines:
        sys.stderr.write(line + "\n")
    sys.exit(code)
