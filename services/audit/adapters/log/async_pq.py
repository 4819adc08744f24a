"""Prepared statements on the event loop.

A thread that waits for the database costs a change of threads for every commit, twice, and the lock of the interpreter with
each. libpq itself can be told to wait for nothing; what is left to do is to watch its socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import psycopg
from psycopg import pq

# So long at most nobody looks at a connection by itself: of one that was reset, the loop may never tell that it can be read.
RECHECK_SECONDS = 0.2


class PreparedConnection:
    """A connection to PostgreSQL as the event loop uses it. Its socket is watched from one statement to the next, because
    beginning and ending that costs more than the statement: whoever else uses the connection must `leave` it first."""

    def __init__(self, pgconn: pq.abc.PGconn) -> None:
        self._pgconn, self._socket = pgconn, pgconn.socket
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._watching = False

    async def execute_prepared(self, statement: bytes, parameters: Sequence[bytes]) -> pq.abc.PGresult:
        """Run a prepared statement with parameters in binary format; return its result, which may be an error. Raises
        OperationalError when the connection broke. If it is left before it returned, the connection is of no more use."""
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
            raise psycopg.OperationalError("the connection gave no result")
        return last

    def stop_watching(self) -> None:
        """Stop watching the socket, until the next statement."""
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
            # Nobody asked: the server says goodbye. The next statement finds out; until then this would go on and on.
            self.stop_watching()
        else:
            _resolve(self._waiter)

    async def _wait_writable(self) -> None:
        # What does not fit into the socket goes as the server takes it, which it does before it has answered anything.
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
