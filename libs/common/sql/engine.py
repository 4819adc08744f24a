"""PostgreSQL: one bounded pool per process, single statements or transactions."""

from __future__ import annotations

import select
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from sqlalchemy import event
from sqlalchemy.exc import DataError, DBAPIError, InvalidatePoolError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from libs.common.errors import MeshError, Reason

# SQLSTATE of values that cannot be stored: None from the driver; the null character in a text and in JSON.
_NOT_STORABLE = (None, "22021", "22P05")
# SQLSTATE of a server that is a read-only replica.
_READ_ONLY = "25006"
_TIMEOUTS = "-c statement_timeout=30000 -c idle_in_transaction_session_timeout=60000"


def engine_for(url: str, *, schema: str, size: int = 5) -> AsyncEngine:
    """Return an engine whose connections see only the schema of their service. The pool never exceeds `size`."""
    engine = create_async_engine(
        url.replace("postgresql://", "postgresql+psycopg://", 1),
        pool_size=size,
        max_overflow=0,
        pool_timeout=2.0,
        pool_recycle=1800,
        # Most statements stand alone: BEGIN and COMMIT would be two more round trips.
        isolation_level="AUTOCOMMIT",
        connect_args={
            "options": f"-c search_path={schema} {_TIMEOUTS}",
            "connect_timeout": 3,
            "application_name": f"toolmesh-{schema}",
        },
    )
    event.listen(engine.sync_engine, "checkout", _check_connection)
    return engine


@asynccontextmanager
async def separately(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Run each statement by itself: reads, or changes of one statement.

    Raises SERVICE_UNAVAILABLE when the database is unreachable or read-only, or the pool is exhausted, and
    INVALID_REQUEST for a value that no column can hold, such as a text with the null character.
    """
    with _available():
        async with engine.connect() as connection:
            try:
                yield connection
            except DBAPIError as error:
                if _state(error) == _READ_ONLY:
                    # The next use reconnects: the address may lead to the primary by then.
                    await connection.invalidate(error)
                raise


@asynccontextmanager
async def transaction(engine: AsyncEngine, isolation: str = "READ COMMITTED") -> AsyncIterator[AsyncConnection]:
    """Run a block in one transaction: committed at its end, rolled back if it raises. Fails like `separately`."""
    async with separately(engine) as connection:
        await connection.execution_options(isolation_level=isolation)
        async with connection.begin():
            yield connection


@contextmanager
def _available() -> Iterator[None]:
    try:
        yield
    except (PoolTimeout, OperationalError) as error:
        raise MeshError(Reason.SERVICE_UNAVAILABLE, retry_after=1.0) from error
    except DataError as error:
        if _state(error) in _NOT_STORABLE:
            raise MeshError(
                Reason.INVALID_REQUEST, message="a value cannot be stored, such as a text with the null character"
            ) from error
        raise
    except DBAPIError as error:
        if error.connection_invalidated or _state(error) == _READ_ONLY:
            raise MeshError(Reason.SERVICE_UNAVAILABLE, retry_after=1.0) from error
        raise


def _state(error: DBAPIError) -> str | None:
    """Return the SQLSTATE; None if the driver raised the error, empty if it has none."""
    state: str | None = getattr(error.orig, "sqlstate", "")
    return state


def _check_connection(connection: Any, record: object, proxy: object) -> None:
    """Reconnect the whole pool if the server closed an idle connection.

    An idle connection is readable only then: polling its socket costs no round trip.
    """
    driver = connection.driver_connection
    if driver.closed or _readable(driver.fileno()):
        raise InvalidatePoolError


def _readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
