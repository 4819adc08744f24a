"""Group commit: batches that arrive during one commit share the next, across streams."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from services.audit.domain.errors import (
    RecordIdTakenError,
    TakenIdsError,
    append_backpressure,
    batch_out_of_order,
    log_unavailable,
)
from services.audit.domain.log.tail import Tail
from services.audit.domain.merkle.merkle import leaf_hash
from services.audit.domain.model import AppendResult, Entry, payload_bytes_of
from services.audit.domain.ports import LogWriter

MAX_QUEUED_BYTES = 64 * 1024 * 1024
COMMIT_TIMEOUT_SECONDS = 10.0
# Larger commits are hardly cheaper per record, and preparing them would block the event loop.
GROUP_RECORDS = 512


class _QueuedBatch(NamedTuple):
    batch: Sequence[Entry]
    payload_bytes: int
    last_sequence: asyncio.Future[int]
    """One future per batch, so that a canceled stream cancels only its own."""


class _Group(NamedTuple):
    """Batches that share a commit, and their entries in order."""

    queued: list[_QueuedBatch]
    entries: list[Entry]


class BatchSequence:
    """Checks that the batches of one stream are numbered 1, 2, 3. A wrong number means that client and server disagree
    about what was sent, so it ends the stream."""

    def __init__(self) -> None:
        self._last = 0

    def accept(self, number: int) -> None:
        """Accept the next batch number; raise INVALID_REQUEST for any other."""
        if number != self._last + 1:
            raise batch_out_of_order(self._last + 1)
        self._last = number


class AppendRecords:
    """Acknowledges a batch only when it is durable. Batches of all streams share commits in order of arrival."""

    def __init__(
        self,
        log: LogWriter,
        tail: Tail,
        *,
        max_queued_bytes: int = MAX_QUEUED_BYTES,
        timeout: float = COMMIT_TIMEOUT_SECONDS,
        group: int = GROUP_RECORDS,
    ) -> None:
        self._log, self._tail = log, tail
        self._max_queued_bytes, self._timeout, self._group = max_queued_bytes, timeout, group
        self._queue: deque[_QueuedBatch] = deque()
        self._queued_bytes = self._queued_records = 0
        self._committing = False
        self._next: _Group | None = None
        """Prepared while another group is being committed."""
        self._batch_arrived = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start committing."""
        self._task = asyncio.create_task(self._commit_forever(), name="group-commit")

    async def stop(self) -> None:
        """Commit everything queued, then return."""
        self._stopping = True
        self._batch_arrived.set()
        if self._task is not None:
            await self._task

    async def append(self, batch: Sequence[Entry]) -> int:
        """Return the sequence of the batch's last record once the whole batch is durable.

        Raises AUDIT_BACKPRESSURE, without accepting the batch, when the queue is full. Raises AUDIT_UNAVAILABLE when
        the commit fails or times out; the batch may or may not be durable. Raises AUDIT_RECORD_INVALID, and stores
        nothing of the batch, when one of its records has the id of another record.
        """
        payload_bytes = payload_bytes_of(batch)
        if self._queue and self._queued_bytes + payload_bytes > self._max_queued_bytes:
            raise append_backpressure()
        loop = asyncio.get_running_loop()
        queued = _QueuedBatch(batch, payload_bytes, loop.create_future())
        self._queue.append(queued)
        self._queued_bytes += payload_bytes
        self._queued_records += len(batch)
        self._batch_arrived.set()
        self._prepare_next()
        timeout = loop.call_later(self._timeout, _time_out, queued.last_sequence)
        try:
            return await queued.last_sequence
        finally:
            timeout.cancel()

    def _prepare_next(self) -> None:
        """Prepare the next group during a commit once it is full. A smaller group stays open for more batches."""
        if self._committing and self._next is None and self._queued_records >= self._group:
            self._next = self._next_group()
            self._log.prepare_next(self._next.entries)

    async def _commit_forever(self) -> None:
        while self._queue or self._next or not self._stopping:
            if not self._queue and not self._next:
                self._batch_arrived.clear()
                await self._batch_arrived.wait()
            group, self._next = self._next or self._next_group(), None
            if group.entries:
                self._committing = True
                await self._commit(group)
                self._committing = False

    def _next_group(self) -> _Group:
        """Take queued batches in order, up to the size of one commit."""
        group = _Group([], [])
        while self._queue and len(group.entries) < self._group:
            queued = self._queue.popleft()
            self._queued_bytes -= queued.payload_bytes
            self._queued_records -= len(queued.batch)
            group.queued.append(queued)
            group.entries.extend(queued.batch)
        return group

    async def _commit(self, group: _Group) -> None:
        while group.entries:
            try:
                result = await self._log.append(group.entries)
            except RecordIdTakenError as error:
                group = _refuse_taken_ids(group, error.held_leaves)
            except Exception as error:
                # Unexpected errors must reach the streams too, or they would wait forever.
                for queued in group.queued:
                    _refuse(queued, error)
                return
            else:
                self._tail.advance(result.size, result.commit)
                _acknowledge(group, result)
                return


def _acknowledge(group: _Group, result: AppendResult) -> None:
    end = 0
    for queued in group.queued:
        end += len(queued.batch)
        if not queued.last_sequence.done():
            queued.last_sequence.set_result(result.sequences[end - 1])


def _refuse_taken_ids(group: _Group, held_leaves: Mapping[str, bytes]) -> _Group:
    """Refuse the batches with a record id that another record has, in the log or in an earlier batch; return the
    others. A refused batch reserves no ids."""
    accepted, leaves = _Group([], []), dict(held_leaves)
    for queued in group.queued:
        batch_leaves: dict[str, bytes] = {}
        taken = []
        for position, entry in enumerate(queued.batch):
            leaf, record_id = leaf_hash(entry.canonical), entry.record_id
            if leaf != (leaves.get(record_id) or batch_leaves.setdefault(record_id, leaf)):
                taken.append(position)
        if taken:
            _refuse(queued, TakenIdsError(queued.batch[taken[0]].record_id, taken))
        else:
            leaves |= batch_leaves
            accepted.queued.append(queued)
            accepted.entries.extend(queued.batch)
    return accepted


def _refuse(queued: _QueuedBatch, error: Exception) -> None:
    if not queued.last_sequence.done():
        queued.last_sequence.set_exception(error)


def _time_out(last_sequence: asyncio.Future[int]) -> None:
    if not last_sequence.done():
        last_sequence.set_exception(log_unavailable())
