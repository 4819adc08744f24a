"""PostgreSQL: one bounded pool per process; statements by themselves, or several in a transaction."""

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

# What the driver itself refuses has no state; the others are what the server says of the null character, in a text and inside JSON.
_NOT_STORABLE = (None, "22021", "22P05")
# What a server says that is only a copy, or was made one while another took its place.
_READ_ONLY = "25006"


def engine_for(url: str, *, schema: str, size: int = 5) -> AsyncEngine:
    """Return an engine whose connections see only the schema of their service. The pool never exceeds `size`."""
    engine = create_async_engine(
        url.replace("postgresql://", "postgresql+psycopg://", 1),
        pool_size=size,
        max_overflow=0,
        pool_timeout=2.0,
        pool_recycle=1800,
        # Most statements stand alone: to begin and to commit would be two more round trips for each of them.
        isolation_level="AUTOCOMMIT",
        connect_args={
            "options": f"-c search_path={schema} -c statement_timeout=30000 -c idle_in_transaction_session_timeout=60000",
            "connect_timeout": 3,
            "application_name": f"toolmesh-{schema}",
        },
    )
    event.listen(engine.sync_engine, "checkout", _still_there)
    return engine


@asynccontextmanager
async def separately(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Run statements each by itself: to read, or to make a change that is one statement.

    A database that cannot be reached or takes no changes now, or whose pool is used up, raises SERVICE_UNAVAILABLE: the caller may
    try again. A value that no column can hold, such as a text with the null character, raises INVALID_REQUEST.
    """
    with _available():
        async with engine.connect() as connection:
            try:
                yield connection
            except DBAPIError as error:
                if _state(error) == _READ_ONLY:
                    # The next one connects anew: the address may lead to the right server by then.
                    await connection.invalidate(error)
                raise


@asynccontextmanager
async def transaction(engine: AsyncEngine, isolation: str = "READ COMMITTED") -> AsyncIterator[AsyncConnection]:
    """Run a block in one transaction: committed at its end, rolled back if it raises. Fails as `separately` does."""
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
    """Return what the server calls the error; None if the driver itself made it, nothing if it has no such name at all."""
    state: str | None = getattr(error.orig, "sqlstate", "")
    return state


def _still_there(connection: Any, record: object, proxy: object) -> None:
    """Have the whole pool connect anew if the server left while nobody asked it anything. Between two statements there is nothing to read
    on a connection but that: a look at the socket tells without asking the server, which would be a round trip for each use."""
    driver = connection.driver_connection
    if driver.closed or _readable(driver.fileno()):
        raise InvalidatePoolError


def _readable(descriptor: int) -> bool:
    look = select.poll()
    look.register(descriptor, select.POLLIN)
    return bool(look.poll(0))
