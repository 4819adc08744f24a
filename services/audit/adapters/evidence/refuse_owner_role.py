"""Refuses to run as a role that could rewrite the log."""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sql.engine import separately
from libs.common.sql.schema import SchemaError, SchemaProblem

# A superuser is a member of every role.
_OWNS = text(
    "select current_user, pg_has_role(current_user, relowner, 'member') from pg_class"
    " where oid = to_regclass('records')"
)


async def refuse_owner(engine: AsyncEngine) -> None:
    """Raise SchemaError if the engine's role owns the log, or may act as its owner, and so could disable its guards."""
    async with separately(engine) as connection:
        role, owns = (await connection.execute(_OWNS)).one()
    if owns:
        raise SchemaError(
            SchemaProblem.ROLE_OWNS_TABLES,
            f"role {role} owns the log, or may act as its owner, and could rewrite it."
            " TOOLMESH_DATABASE_URL must name the role audit, and another role must own schema audit",
        )
