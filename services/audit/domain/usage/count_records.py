"""Counts the log in the background, one segment per transaction."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date
from typing import NamedTuple

from libs.common.runtime.clock import Clock, SystemClock
from services.audit.domain.log.yield_every import yield_every
from services.audit.domain.relay.follower_throttle import rest_seconds
from services.audit.domain.usage.call import OTHER, Call, DecodedRecord, LogSegment, call_of
from services.audit.domain.usage.cells import LIMITS, Cell, Rollup, cells_of
from services.audit.domain.usage.ports import CountingTransaction, UsageStore
from services.audit.domain.usage.tally import Tally

POLL_SECONDS = 1.0
MAX_REST_SECONDS = 10.0
_RollupDay = tuple[Rollup, date]


class _CallGroup(NamedTuple):
    """Calls of a segment with the same cells: one of them, and the tally of all. Calls of a busy log are mostly alike,
    so each is counted once here instead of once per rollup."""

    call: Call
    tally: Tally


class CountRecords:
    """Follows the log and counts each record exactly once, across replicas and restarts.

    It is throttled (throttle.py), so a busy machine makes it count fewer and larger segments. While it is behind, it
    continues without the polling interval.
    """

    def __init__(
        self,
        store: UsageStore,
        *,
        failed: Callable[[Exception], None] = lambda error: None,
        limits: Mapping[Rollup, int] = LIMITS,
        poll: float = POLL_SECONDS,
        clock: Clock | None = None,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._store, self._failed, self._limits, self._poll = store, failed, limits, poll
        self._clock, self._pause = clock or SystemClock(), pause
        self._lag_seconds = 0.0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start counting."""
        self._task = asyncio.create_task(self._count_forever(), name="count-usage")

    async def stop(self) -> None:
        """Stop counting. A running transaction is rolled back; the next process repeats it."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def run_once(self) -> bool:
        """Count one segment, unless another replica is counting. Return whether the log is known to have more."""
        async with self._store.begin() as transaction:
            return transaction is not None and await self._count_segment(transaction)

    async def _count_forever(self) -> None:
        while True:
            began = self._clock.monotonic()
            try:
                more = await self.run_once()
            except Exception as error:
                self._failed(error)
                more = False
            worked = self._clock.monotonic() - began
            rest = rest_seconds(worked, self._lag_seconds)
            rest = rest if more else max(self._poll, rest)
            await self._pause(min(rest, MAX_REST_SECONDS))

    async def _count_segment(self, transaction: CountingTransaction) -> bool:
        segment = await transaction.read_segment()
        self._lag_seconds = self._age(segment)
        if segment.first == segment.end:
            return False
        groups = await _group_calls(segment.records)
        allocator = await self._allocate_cells(transaction, groups)
        tallies = await allocator.count(groups)
        await transaction.save(tallies, allocator.sizes, segment.end)
        return segment.more

    def _age(self, segment: LogSegment) -> float:
        """Return how long the first record of the segment has been in the log, in seconds."""
        if not segment.records:
            return 0.0
        return max(0.0, (self._clock.now() - segment.records[0].log_time).total_seconds())

    async def _allocate_cells(self, transaction: CountingTransaction, groups: Sequence[_CallGroup]) -> _CellAllocator:
        cells = {cell async for group in yield_every(groups) for cell in cells_of(group.call)}
        known = await transaction.find_tallies(cells)
        arriving = Counter(cell.rollup_day for cell in cells if cell not in known)
        if not arriving:
            # No cell is added, so the number of cells does not matter.
            return _CellAllocator(known, {}, self._limits)
        sizes = await transaction.count_cells({cell.rollup_day for cell in cells})
        crowded = {
            rollup_day
            for rollup_day, count in arriving.items()
            if sizes.get(rollup_day, 0) + count > self._limits[rollup_day[0]]
        }
        if crowded:
            known |= await transaction.find_tallies(set(_overflow_cells(cells, crowded)))
        return _CellAllocator(known, sizes, self._limits)


class _CellAllocator:
    """Assigns calls to cells: their own while the day has room, then the overflow cell."""

    def __init__(
        self, known: Mapping[Cell, Tally], sizes: Mapping[_RollupDay, int], limits: Mapping[Rollup, int]
    ) -> None:
        self._known, self._limits = dict(known), limits
        self.sizes = dict(sizes)

    async def count(self, groups: Sequence[_CallGroup]) -> dict[Cell, Tally]:
        """Count the calls and return every changed cell."""
        changed: dict[Cell, Tally] = {}
        async for group in yield_every(groups):
            for cell in self._cells(group.call):
                tally = self._known.get(cell)
                if tally is None:
                    tally = self._known[cell] = Tally()
                changed[cell] = tally
                tally.merge(group.tally)
        return changed

    def _cells(self, call: Call) -> Iterable[Cell]:
        tool, version = call.tool, call.version
        for own in cells_of(call):
            cell = self._allocate(own.of_tool(tool, version))
            if cell.rollup is Rollup.TOOL:
                # A tool that is folded in the tool rollup is folded in the finer ones too.
                tool, version = cell.tool, cell.version
            yield cell

    def _allocate(self, cell: Cell) -> Cell:
        if cell in self._known:
            return cell
        if self.sizes.get(cell.rollup_day, 0) >= self._limits[cell.rollup]:
            return cell.folded()
        self.sizes[cell.rollup_day] = self.sizes.get(cell.rollup_day, 0) + 1
        return cell


async def _group_calls(records: Iterable[DecodedRecord]) -> list[_CallGroup]:
    """Return the calls that the records end, grouped by cells, in order of first appearance."""
    groups: dict[tuple[date, str, str, str, str, str], _CallGroup] = {}
    async for record in yield_every(records):
        call = call_of(record)
        if call is not None:
            key = (call.event_time.date(), call.tool, call.version, call.tenant, call.subject, call.task)
            group = groups.get(key)
            if group is None:
                group = groups[key] = _CallGroup(call, Tally())
            group.tally.add(call)
    return list(groups.values())


def _overflow_cells(cells: Iterable[Cell], crowded: set[_RollupDay]) -> Iterable[Cell]:
    """Yield every cell that may receive calls of a crowded day."""
    for cell in cells:
        of_any_tool = cell.of_tool(OTHER, "")
        if cell.rollup_day in crowded:
            yield cell.folded()
        if (Rollup.TOOL, cell.day) in crowded:
            yield from (of_any_tool, of_any_tool.folded())
