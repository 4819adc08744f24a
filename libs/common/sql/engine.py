"""PostgreSQL: one bounded pool per process and explicit transactions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from libs.common.errors import MeshError, Reason


def engine_for(url: str, *, schema: str, size: int = 5) -> AsyncEngine:
    """Return an engine whose connections see only the schema of their service. The pool never exceeds `size`."""
    return create_async_engine(
        url.replace("postgresql://", "postgresql+psycopg://", 1),
        pool_size=size,
        max_overflow=0,
        pool_timeout=2.0,
        pool_pre_ping=True,
        pool_recycle=1800,
        connect_args={
            "options": f"-c search_path={schema} -c statement_timeout=30000 -c idle_in_transaction_session_timeout=60000",
            "connect_timeout": 3,
            "application_name": f"toolmesh-{schema}",
        },
    )


@asynccontextmanager
async def transaction(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Run a block in one transaction: committed at its end, rolled back if it raises.

    A database that cannot be reached, or whose pool is used up, raises SERVICE_UNAVAILABLE: the caller may try again.
    """
    try:
        async with engine.begin() as connection:
            yield connection
    except (PoolTimeout, OperationalError) as error:
        raise MeshError(Reason.SERVICE_UNAVAILABLE, retry_after=1.0) from error
    except DBAPIError as error:
        if error.connection_invalidated:
            raise MeshError(Reason.SERVICE_UNAVAILABLE, retry_after=1.0) from error
        raise
