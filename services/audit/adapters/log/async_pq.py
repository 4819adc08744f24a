"""Runs prepared statements on the event loop with non-blocking libpq.

A thread per commit would cost two thread switches and the interpreter lock each time. libpq can work without blocking;
only its socket has to be watched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import psycopg
from psycopg import pq

# Interval for checking the connection without an event: after a reset, the loop may never report it as readable.
RECHECK_SECONDS = 0.2


class PreparedConnection:
    """Runs prepared statements of a PostgreSQL connection on the event loop. The socket stays registered between
    statements, because registering costs more than the statement. Other users of the connection must call
    `stop_watching` first."""

    def __init__(self, pgconn: pq.abc.PGconn) -> None:
        self._pgconn, self._socket = pgconn, pgconn.socket
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._watching = False

    async def execute_prepared(self, statement: bytes, parameters: Sequence[bytes]) -> pq.abc.PGresult:
        """Run a prepared statement with binary parameters; return its result, which may be an error. Raises
        OperationalError if the connection breaks. After a cancellation the connection is unusable."""
        pgconn, last = self._pgconn, None
        pgconn.send_query_prepared(statement, parameters, [pq.Format.BINARY] * len(parameters), pq.Format.BINARY)
        while pgconn.flush():
            await self._wait_writable()
        while True:
            while pgconn.is_busy():
                await self._wait_readable()
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is None:
                break
            last = result
        if last is None:
            raise psycopg.OperationalError("the connection returned no result")
        return last

    def stop_watching(self) -> None:
        """Unregister the socket until the next statement."""
        if self._watching:
            self._loop.remove_reader(self._socket)
            self._watching = False

    async def _wait_readable(self) -> None:
        if not self._watching:
            self._loop.add_reader(self._socket, self._on_readable)
            self._watching = True
        self._waiter = self._loop.create_future()
        recheck = self._loop.call_later(RECHECK_SECONDS, self._on_readable)
        try:
            await self._waiter
        finally:
            recheck.cancel()
            self._waiter = None

    def _on_readable(self) -> None:
        if self._waiter is None:
            # Unsolicited input: the server closes the connection. The next statement reports it; watching on would
            # spin.
            self.stop_watching()
        else:
            _resolve(self._waiter)

    async def _wait_writable(self) -> None:
        # The rest of the query is sent as the server reads it, before it answers.
        room = self._loop.create_future()
        self._loop.add_writer(self._socket, _resolve, room)
        recheck = self._loop.call_later(RECHECK_SECONDS, _resolve, room)
        try:
            await room
        finally:
            recheck.cancel()
            self._loop.remove_writer(self._socket)


def _resolve(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
