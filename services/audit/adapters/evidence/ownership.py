"""Checks who owns the log in the database."""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sql.engine import separately

_OWNS = text("select pg_has_role(current_user, relowner, 'member') from pg_class where oid = to_regclass('records')")


async def role_owns_log(engine: AsyncEngine) -> bool:
    """Return whether the engine's role owns the log, or may act as its owner, and so could disable its guards."""
    async with separately(engine) as connection:
        return bool((await connection.execute(_OWNS)).scalar())
