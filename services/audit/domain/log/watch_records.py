"""Following the log as it grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from services.audit.domain.evidence.errors import records_dropped
from services.audit.domain.evidence.ports import Shards
from services.audit.domain.log.tail import Tail
from services.audit.domain.log.tenancy import shown_to
from services.audit.domain.model import LoggedRecord, RecordFilter, Span
from services.audit.domain.ports import LogReader

FROM_THE_NEXT = -1
PAGE_SIZE = 200
POLL_SECONDS = 0.5
PACE_SECONDS = 0.02


class WatchRecords:
    """Sends every matching record once, in log order. Commits of this process wake it; those of other replicas are found
    by looking every `poll` seconds."""

    def __init__(
        self, log: LogReader, shards: Shards, tail: Tail, *, poll: float = POLL_SECONDS, pace: float = PACE_SECONDS
    ) -> None:
        self._log, self._shards, self._tail = log, shards, tail
        self._poll, self._pace = poll, pace

    async def begin(self, from_sequence: int) -> int:
        """Return the place where a watch begins: the one asked for, or the end of the log as it is now."""
        if from_sequence != FROM_THE_NEXT:
            return from_sequence
        return (await self._log.head()).size

    async def follow(self, position: int, wanted: RecordFilter) -> AsyncIterator[LoggedRecord]:
        """Yield the matching records from `position` onward, without end. Raises FAILED_PRECONDITION instead of passing over records
        that were dropped."""
        while True:
            # The size is read first: what the page does not show below it is not there, so it is safe to go on from it.
            head = await self._log.head()
            span = Span(position, head.size, ascending=True)
            more = span.first < span.end
            while more:
                page = await self._log.page(wanted, span, PAGE_SIZE)
                if span.first < head.first_sequence:
                    # Asked behind the page: what is dropped later was still in it.
                    await self._refuse_gap(span.first, page.records[-1].sequence + 1 if page.more else span.end)
                for record in page.records:
                    if shown_to(wanted.tenant, record):
                        yield record
                more = page.more
                if more:
                    span = span.after(page.records[-1].sequence)
            position = max(position, span.end)
            await self._tail.beyond(position, self._poll)
            # On a busy log every commit would wake every watch: reading at a steady pace costs the writers far less.
            await asyncio.sleep(self._pace)

    async def _refuse_gap(self, first: int, end: int) -> None:
        """Raise if a record from `first` to just before `end` was dropped: whoever watches is promised all of them."""
        shard = await self._shards.containing(first)
        while shard is not None and shard.first_sequence < end:
            if shard.drop_time is not None:
                raise records_dropped(shard)
            shard = await self._shards.shard(shard.number + 1)
