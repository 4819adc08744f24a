"""Group commit: what arrives while one commit runs goes into the next, whichever stream it came from."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from services.audit.domain.errors import TakenError, batch_out_of_turn, log_behind, log_unavailable, record_id_taken
from services.audit.domain.log.tail import Tail
from services.audit.domain.merkle.merkle import leaf_hash
from services.audit.domain.model import Appended, Entry, weight_of
from services.audit.domain.ports import LogWriter

WAITING_BYTES = 64 * 1024 * 1024
PATIENCE_SECONDS = 10.0
# A commit takes no further batch once it has so many records: a larger one would be hardly cheaper for each record, and
# making it ready would keep the event loop from everybody else.
GROUP_RECORDS = 512


class _Waiting(NamedTuple):
    batch: Sequence[Entry]
    weight: int
    last_sequence: asyncio.Future[int]
    """One for each batch: a stream that hangs up cancels its own and nobody else's."""


class _Group(NamedTuple):
    """Batches that share a commit, and their entries in order."""

    waiting: list[_Waiting]
    entries: list[Entry]


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
    """Acknowledges a batch only when it is durable. Batches of different streams share commits, in the order in which they
    came."""

    def __init__(
        self,
        log: LogWriter,
        tail: Tail,
        *,
        waiting_bytes: int = WAITING_BYTES,
        patience: float = PATIENCE_SECONDS,
        group: int = GROUP_RECORDS,
    ) -> None:
        self._log, self._tail = log, tail
        self._limit, self._patience, self._group = waiting_bytes, patience, group
        self._queue: deque[_Waiting] = deque()
        self._weight = self._records = 0
        self._committing = False
        self._next: _Group | None = None
        """Made ready while another group is being committed."""
        self._arrived = asyncio.Event()
        self._ending = False
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to commit."""
        self._running = asyncio.create_task(self._commit_forever(), name="group-commit")

    async def stop(self) -> None:
        """Commit what is waiting, then return."""
        self._ending = True
        self._arrived.set()
        if self._running is not None:
            await self._running

    async def __call__(self, batch: Sequence[Entry]) -> int:
        """Return the sequence of the batch's last record once the whole batch is durable.

        Raises AUDIT_BACKPRESSURE when too much is waiting already; the batch is then not taken. Raises AUDIT_UNAVAILABLE
        when the commit failed or takes too long; the batch may then be durable or not. Raises AUDIT_RECORD_INVALID when a
        record of it has the id of another one; nothing of the batch is then stored.
        """
        weight = weight_of(batch)
        if self._queue and self._weight + weight > self._limit:
            raise log_behind()
        loop = asyncio.get_running_loop()
        waiting = _Waiting(batch, weight, loop.create_future())
        self._queue.append(waiting)
        self._weight += weight
        self._records += len(batch)
        self._arrived.set()
        self._look_ahead()
        patience = loop.call_later(self._patience, _give_up, waiting.last_sequence)
        try:
            return await waiting.last_sequence
        finally:
            patience.cancel()

    def _look_ahead(self) -> None:
        """Make the next group ready while the database has another one, once it is as large as it will be. A smaller one stays
        open for company until its turn comes."""
        if self._committing and self._next is None and self._records >= self._group:
            self._next = self._next_group()
            self._log.foresee(self._next.entries)

    async def _commit_forever(self) -> None:
        while self._queue or self._next or not self._ending:
            if not self._queue and not self._next:
                self._arrived.clear()
                await self._arrived.wait()
            group, self._next = self._next or self._next_group(), None
            if group.entries:
                self._committing = True
                await self._commit(group)
                self._committing = False

    def _next_group(self) -> _Group:
        """Take what waits, in its order, up to as much as one commit should hold."""
        group = _Group([], [])
        while self._queue and len(group.entries) < self._group:
            waiting = self._queue.popleft()
            self._weight -= waiting.weight
            self._records -= len(waiting.batch)
            group.waiting.append(waiting)
            group.entries.extend(waiting.batch)
        return group

    async def _commit(self, group: _Group) -> None:
        while group.entries:
            try:
                appended = await self._log.append(group.entries)
            except TakenError as error:
                group = _without_taken(group, error.held)
            except Exception as error:
                # Also what nobody foresaw must reach the streams: a waiter that is forgotten would wait for nothing.
                for waiting in group.waiting:
                    _refuse(waiting, error)
                return
            else:
                self._tail.reached(appended.size, appended.stored)
                _acknowledge(group, appended)
                return


def _acknowledge(group: _Group, appended: Appended) -> None:
    end = 0
    for waiting in group.waiting:
        end += len(waiting.batch)
        if not waiting.last_sequence.done():
            waiting.last_sequence.set_result(appended.sequences[end - 1])


def _without_taken(group: _Group, held: Mapping[str, bytes]) -> _Group:
    """Refuse the batches in which a record has the id of another one, in the log or in a batch before it; return the others.
    What is refused takes no ids from those behind it."""
    left, leaves = _Group([], []), dict(held)
    for waiting in group.waiting:
        own: dict[str, bytes] = {}
        for record_id, leaf in [(entry.record_id, leaf_hash(entry.canonical)) for entry in waiting.batch]:
            if leaf != (leaves.get(record_id) or own.setdefault(record_id, leaf)):
                _refuse(waiting, record_id_taken(record_id))
                break
        else:
            leaves |= own
            left.waiting.append(waiting)
            left.entries.extend(waiting.batch)
    return left


def _refuse(waiting: _Waiting, error: Exception) -> None:
    if not waiting.last_sequence.done():
        waiting.last_sequence.set_exception(error)


def _give_up(last_sequence: asyncio.Future[int]) -> None:
    if not last_sequence.done():
        last_sequence.set_exception(log_unavailable())
