"""Group commit: everything that arrives while one commit runs goes into the next, whichever stream it came from."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from services.audit.domain.errors import batch_out_of_turn, log_behind, log_unavailable
from services.audit.domain.model import Entry
from services.audit.domain.ports import LogWriter
from services.audit.domain.tail import Tail

WAITING_BYTES = 64 * 1024 * 1024
PATIENCE_SECONDS = 10.0


class _Waiting(NamedTuple):
    batch: Sequence[Entry]
    weight: int
    last_sequence: asyncio.Future[int]
    """One for each batch: a stream that hangs up cancels its own and nobody else's."""


class Turn:
    """The order of one stream's batches: 1, 2, 3. A number out of turn means that the two sides no longer agree about what
    was sent, so it ends the stream; other streams have turns of their own."""

    def __init__(self) -> None:
        self._last = 0

    def take(self, number: int) -> None:
        """Accept the next batch; raise INVALID_REQUEST for any other."""
        if number != self._last + 1:
            raise batch_out_of_turn(self._last + 1)
        self._last = number


class AppendRecords:
    """Acknowledges a batch only when it is durable. Batches of different streams share commits and never wait in line for
    more than the commit that is under way."""

    def __init__(
        self, log: LogWriter, tail: Tail, *, waiting_bytes: int = WAITING_BYTES, patience: float = PATIENCE_SECONDS
    ) -> None:
        self._log, self._tail = log, tail
        self._limit, self._patience = waiting_bytes, patience
        self._queue: list[_Waiting] = []
        self._weight = 0
        self._arrived = asyncio.Event()
        self._ending = False
        self._committing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to commit."""
        self._committing = asyncio.create_task(self._commit_forever(), name="group-commit")

    async def stop(self) -> None:
        """Commit what is waiting, then return."""
        self._ending = True
        self._arrived.set()
        if self._committing is not None:
            await self._committing

    async def __call__(self, batch: Sequence[Entry]) -> int:
        """Return the sequence of the batch's last record once the whole batch is durable.

        Raises AUDIT_BACKPRESSURE when too much is waiting already; the batch is then not taken. Raises AUDIT_UNAVAILABLE
        when the commit failed or takes too long; the batch may then be durable or not.
        """
        weight = sum(len(entry.canonical) for entry in batch)
        if self._queue and self._weight + weight > self._limit:
            raise log_behind()
        waiting = _Waiting(batch, weight, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        self._weight += weight
        self._arrived.set()
        try:
            async with asyncio.timeout(self._patience):
                return await waiting.last_sequence
        except TimeoutError:
            raise log_unavailable() from None

    async def _commit_forever(self) -> None:
        while self._queue or not self._ending:
            await self._arrived.wait()
            self._arrived.clear()
            group, self._queue, self._weight = self._queue, [], 0
            if group:
                await self._commit(group)

    async def _commit(self, group: Sequence[_Waiting]) -> None:
        try:
            appended = await self._log.append([entry for waiting in group for entry in waiting.batch])
        except Exception as error:
            # Also what nobody foresaw must reach the streams: a waiter that is forgotten would wait for nothing.
            for waiting in group:
                if not waiting.last_sequence.done():
                    waiting.last_sequence.set_exception(error)
            return
        self._tail.reached(appended.size)
        end = 0
        for waiting in group:
            end += len(waiting.batch)
            if not waiting.last_sequence.done():
                waiting.last_sequence.set_result(appended.sequences[end - 1])
