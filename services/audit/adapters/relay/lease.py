"""Relay lease and position in PostgreSQL.

The lease is a session-level advisory lock, and the position is written in the same session: a process that lost the
session, and with it the lock, can no longer move the position. The server ends the session when the process exits, when
its machine is unreachable, or after 30 s without a statement.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from typing import Any

import psycopg

from services.audit.domain.errors import LeaseLostError

APPLICATION_NAME = "toolmesh-audit-relay"
# The position may lag behind the sink but never run ahead, so it need not wait for the disk: after a crash of the
# database, records are relayed again.
_OPTIONS = (
    "-c search_path=audit -c synchronous_commit=off -c statement_timeout=5000 -c idle_session_timeout=30000"
    " -c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3"
)
_ACQUIRE = "select pg_try_advisory_lock(%s)"
_INSERT_POSITION = "insert into relay_positions (sink, position) values (%s, 0) on conflict (sink) do nothing"
_POSITION = "select position from relay_positions where sink = %s"
_ADVANCE = """
update relay_positions set position = greatest(position, %s), holder = %s, moved_at = clock_timestamp() where sink = %s
"""

Connection = psycopg.AsyncConnection[Any]
_UNLOCK_TIMEOUT_SECONDS = 1.0


class PostgresRelayLease:
    """Implements RelayLease for one sink, among all processes on one database."""

    def __init__(self, url: str, sink: str, *, holder: str) -> None:
        self._url, self._sink, self._holder = url, sink, holder
        self._key = int.from_bytes(
            hashlib.sha256(f"toolmesh:audit:relay:{sink}".encode()).digest()[:8], "big", signed=True
        )
        self._connection: Connection | None = None

    async def acquire(self) -> int | None:
        """Implement `RelayLease.acquire`."""
        if not (await self._fetch_one(_ACQUIRE, self._key))[0]:
            return None
        await self._run(_INSERT_POSITION, self._sink)
        return await self.position()

    async def renew(self) -> None:
        """Implement `RelayLease.renew`: the lease is held while its session answers."""
        await self._run_with_lease("select 1")

    async def advance(self, position: int) -> None:
        """Implement `RelayLease.advance`."""
        await self._run_with_lease(_ADVANCE, position, self._holder, self._sink)

    async def position(self) -> int:
        """Implement `RelayLease.position`."""
        cursor = await self._run(_POSITION, self._sink)
        row = await cursor.fetchone()
        return int(row[0]) if row else 0

    async def release(self) -> None:
        """Implement `RelayLease.release`: the lock ends with the session."""
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error, OSError, TimeoutError):
                # Unlocks at once; the server notices a closed connection only later.
                async with asyncio.timeout(_UNLOCK_TIMEOUT_SECONDS):
                    await self._connection.execute("select pg_advisory_unlock_all()")
            with contextlib.suppress(psycopg.Error, OSError):
                await self._connection.close()
        self._connection = None

    async def _run_with_lease(self, statement: str, *parameters: Any) -> None:
        if self._connection is None:
            raise LeaseLostError("the session of the lease has ended")
        try:
            await self._run(statement, *parameters)
        except psycopg.Error as error:
            raise LeaseLostError("the session of the lease has ended") from error

    async def _fetch_one(self, statement: str, *parameters: Any) -> Any:
        return await (await self._run(statement, *parameters)).fetchone()

    async def _run(self, statement: str, *parameters: Any) -> psycopg.AsyncCursor[Any]:
        if self._connection is None:
            self._connection = await _connect(self._url)
        try:
            return await self._connection.execute(statement, parameters)
        except psycopg.Error:
            await self.release()
            raise


async def _connect(url: str) -> Connection:
    return await psycopg.AsyncConnection.connect(
        url, autocommit=True, connect_timeout=3, options=_OPTIONS, application_name=APPLICATION_NAME
    )
