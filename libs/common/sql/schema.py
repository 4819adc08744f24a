"""The schema of a service's tables: where its revisions are, and whether a database holds the one that a build needs.

A service only checks. `libs.common.sql.migrate` changes the schema, in a process of its own, so that a service never
needs the credentials of the role that owns its tables.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.runtime.start_error import StartError

VERSION_TABLE = "schema_version"
# From the catalogs alone: a role without any privilege on the schema may run it. The comment of the version table is
# the oldest revision whose build works on the schema.
LOCATE = f"""
    select current_user as role, current_database() as database, namespace.oid is not null as exists,
           relation.oid is not null as migrated,
           coalesce(has_schema_privilege(namespace.oid, 'usage')
               and has_table_privilege(relation.oid, 'select'), false) as readable,
           obj_description(relation.oid, 'pg_class') as oldest
    from (select) as one
    left join pg_namespace as namespace on namespace.nspname = %(schema)s
    left join pg_class as relation on relation.relnamespace = namespace.oid and relation.relname = '{VERSION_TABLE}'
"""  # noqa: S608  (a constant)


class SchemaProblem(enum.Enum):
    """Why a service does not start on a database, or cannot be migrated there."""

    UNREACHABLE = "unreachable"
    """The role cannot connect: server, database, role or password is wrong."""
    SCHEMA_MISSING = "schema missing"
    ROLE_WITHOUT_ACCESS = "role without access"
    """The schema is there, but its owner granted nothing to this role."""
    NOT_MIGRATED = "not migrated"
    """The migrations of this build have not run."""
    MIGRATION_FAILED = "migration failed"
    NEWER_THAN_BUILD = "newer than this build"
    ROLE_OWNS_TABLES = "role owns tables"
    """The service must not be able to change its own tables' rules, and its role can."""


class SchemaError(StartError):
    """The database does not hold the schema that this build needs. The message says what to do."""

    def __init__(self, problem: SchemaProblem, message: str) -> None:
        super().__init__(message)
        self.problem = problem


@dataclass(frozen=True)
class ServiceSchema:
    """The schema of one service and the folder of its revisions."""

    name: str
    folder: Path
    oldest: str = ""
    """The oldest revision whose build works on this schema: since then revisions only add. Empty: none but this."""

    @property
    def revisions(self) -> tuple[str, ...]:
        """Return the revisions that this build knows, oldest first. Files are named by their revision."""
        return tuple(sorted(path.name.split("_")[0] for path in (self.folder / "versions").glob("[0-9]*.py")))

    @property
    def newest(self) -> str:
        """Return the revision that this build needs."""
        return self.revisions[-1]

    @property
    def command(self) -> str:
        """Return the command that migrates the schema."""
        return f"python -m services.{self.name}.migrations"

    def works_on(self, current: str | None, oldest: str | None) -> bool:
        """Return whether this build works on a newer schema, whose migrations say which builds do."""
        return bool(current and oldest) and str(oldest) <= self.newest < str(current)


async def check_schema(engine: AsyncEngine, schema: ServiceSchema) -> None:
    """Return if the database holds the schema of this build, or a newer one on which it works. Raises SchemaError."""
    try:
        async with engine.connect() as connection:
            found = (await connection.exec_driver_sql(LOCATE, {"schema": schema.name})).one()
            require_readable(schema, found)
            current = await connection.scalar(text(f"select version_num from {schema.name}.{VERSION_TABLE}"))  # noqa: S608
    except DBAPIError as error:
        raise unreachable(engine.url, error.orig) from None
    if schema.works_on(current, found.oldest):
        return
    require_not_newer(schema, current)
    if current != schema.newest:
        raise SchemaError(
            SchemaProblem.NOT_MIGRATED,
            f"the migrations have not run: schema {schema.name} is at revision {current or 'none'}, this build needs"
            f" {schema.newest}. Run `{schema.command}` of this build",
        )


def require_readable(schema: ServiceSchema, found: Row[Any]) -> None:
    """Raise SchemaError unless the schema is there, was migrated once, and the role may read it."""
    if not found.exists:
        raise missing(schema, found.database)
    if not found.migrated:
        raise SchemaError(
            SchemaProblem.NOT_MIGRATED,
            f"the migrations have not run: schema {schema.name} of database {found.database} has no tables."
            f" Run `{schema.command}` of this build",
        )
    if not found.readable:
        raise SchemaError(
            SchemaProblem.ROLE_WITHOUT_ACCESS,
            f"role {found.role} may not read schema {schema.name} of database {found.database}."
            f" TOOLMESH_DATABASE_URL must name the role {schema.name}",
        )


def require_not_newer(schema: ServiceSchema, current: str | None) -> None:
    """Raise SchemaError if the database is at a revision that this build does not know."""
    if current is not None and current not in schema.revisions:
        raise SchemaError(
            SchemaProblem.NEWER_THAN_BUILD,
            f"the database is newer than this build: schema {schema.name} is at revision {current}, this build knows"
            f" revisions up to {schema.newest}. Run the build that migrated it, or restore a backup from before",
        )


def missing(schema: ServiceSchema, database: str) -> SchemaError:
    """Return the error of a database without the schema."""
    return SchemaError(
        SchemaProblem.SCHEMA_MISSING,
        f"schema {schema.name} is missing in database {database}. Create it for the role that migrates it:"
        f" `create schema {schema.name} authorization <role>`",
    )


def unreachable(url: Any, cause: BaseException | None) -> SchemaError:
    """Return the error of a role that cannot connect. The driver's text holds no password."""
    reason = " ".join(str(cause).split())[:300]
    return SchemaError(
        SchemaProblem.UNREACHABLE,
        f"role {url.username} cannot use database {url.database} at {url.host}:{url.port or 5432}: {reason}",
    )
