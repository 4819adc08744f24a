"""Follows the log as it grows."""

from __future__ import annotations

from collections.abc import AsyncIterator

from services.audit.domain.evidence.errors import records_dropped
from services.audit.domain.evidence.ports import ShardStore
from services.audit.domain.log.append_buffer import AppendBufferReader
from services.audit.domain.log.shared_head import SharedHead
from services.audit.domain.log.tail import Tail
from services.audit.domain.log.tenancy import is_visible_to
from services.audit.domain.model import LoggedRecord, RecordFilter, Span
from services.audit.domain.ports import LogReader

FROM_END = -1
PAGE_SIZE = 200
POLL_SECONDS = 0.5


class WatchRecords:
    """Sends every matching record once, in log order. Commits of this process wake it; commits of other replicas are
    found by polling every `poll` seconds. All watches share the reads of the head, and new records of this process come
    from memory, so a watch that waits at the end of the log costs the database nothing."""

    def __init__(
        self, log: LogReader, shards: ShardStore, tail: Tail, heads: SharedHead, *, poll: float = POLL_SECONDS
    ) -> None:
        self._log, self._shards, self._tail, self._heads = log, shards, tail, heads
        self._recent = AppendBufferReader(log, tail.buffer)
        self._poll = poll

    async def begin(self, from_sequence: int) -> int:
        """Return the first sequence of a watch: the requested one, or the current end of the log."""
        if from_sequence != FROM_END:
            return from_sequence
        return (await self._heads.read()).size

    async def follow(self, position: int, record_filter: RecordFilter) -> AsyncIterator[LoggedRecord]:
        """Yield the matching records from `position` on, without end. Raises FAILED_PRECONDITION instead of skipping
        dropped records."""
        while True:
            # The size is read first: every record below it that matches is on the page, so continuing from it is safe.
            head = await self._heads.read()
            span = Span(position, head.size, ascending=True)
            more = span.first < span.end
            # Only the first page may come from memory: payloads may have been erased since the head was read.
            source: LogReader = self._recent
            while more:
                page = await source.page(record_filter, span, PAGE_SIZE)
                if span.first < head.first_sequence:
                    # Checked after the page was read: records dropped later were still on it.
                    await self._raise_if_dropped(span.first, page.records[-1].sequence + 1 if page.more else span.end)
                for record in page.records:
                    if is_visible_to(record_filter.tenant, record):
                        yield record
                more, source = page.more, self._log
                if more:
                    span = span.after(page.records[-1].sequence)
            position = max(position, span.end)
            await self._tail.wait_beyond(position, self._poll)

    async def _raise_if_dropped(self, first: int, end: int) -> None:
        """Raise if a record from `first` to `end` (exclusive) was dropped: a watch promises all records."""
        shard = await self._shards.find_containing(first)
        while shard is not None and shard.first_sequence < end:
            if shard.drop_time is not None:
                raise records_dropped(shard)
            shard = await self._shards.get(shard.number + 1)
