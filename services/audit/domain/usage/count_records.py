"""Counting the log, turn by turn, in the background."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date
from typing import NamedTuple

from libs.common.runtime.clock import Clock, SystemClock
from services.audit.domain.log.yield_every import in_slices
from services.audit.domain.relay.throttle import rest_seconds
from services.audit.domain.usage.call import OTHER, Call, Evidence, Stretch, call_of
from services.audit.domain.usage.cells import LIMITS, Cell, Rollup, cells_of
from services.audit.domain.usage.ports import Turn, UsageBook
from services.audit.domain.usage.tally import Tally

POLL_SECONDS = 1.0
MOST_REST_SECONDS = 10.0
_Page = tuple[Rollup, date]


class _Alike(NamedTuple):
    """Calls of one stretch that belong into the same cells: one of them, and all of them counted. Most calls of a busy log
    are like others, and each is counted once here instead of once in every rollup."""

    call: Call
    tally: Tally


class CountRecords:
    """Follows the log and counts each record once, whichever replica does it and whenever one of them ends.

    It rests many times as long as it works (pace.py), so that a busy machine makes it take fewer and larger turns. When it is far
    behind it goes on without waiting for more: the log is caught up with, and not at the cost of whoever appends to it.
    """

    def __init__(
        self,
        book: UsageBook,
        *,
        failed: Callable[[Exception], None] = lambda error: None,
        limits: Mapping[Rollup, int] = LIMITS,
        poll: float = POLL_SECONDS,
        clock: Clock | None = None,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._book, self._failed, self._limits, self._poll = book, failed, limits, poll
        self._clock, self._pause = clock or SystemClock(), pause
        self._behind = 0.0
        self._counting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to count."""
        self._counting = asyncio.create_task(self._count_forever(), name="count-usage")

    async def stop(self) -> None:
        """Stop counting. A turn that is under way keeps nothing; the next process takes it again."""
        if self._counting is not None:
            self._counting.cancel()
            with suppress(asyncio.CancelledError):
                await self._counting

    async def once(self) -> bool:
        """Take one turn, if no other replica has it. Return whether the log is known to hold more."""
        async with self._book.turn() as turn:
            return turn is not None and await self._count(turn)

    async def _count_forever(self) -> None:
        while True:
            began = self._clock.monotonic()
            try:
                more = await self.once()
            except Exception as error:
                self._failed(error)
                more = False
            worked = self._clock.monotonic() - began
            rest = rest_seconds(worked, self._behind)
            rest = rest if more else max(self._poll, rest)
            await self._pause(min(rest, MOST_REST_SECONDS))

    async def _count(self, turn: Turn) -> bool:
        stretch = await turn.stretch()
        self._behind = self._age(stretch)
        if stretch.first == stretch.end:
            return False
        groups = await _grouped(stretch.evidence)
        places = await self._places(turn, groups)
        tallies = await places.counted(groups)
        await turn.keep(tallies, places.sizes, stretch.end)
        return stretch.more

    def _age(self, stretch: Stretch) -> float:
        """Return for how many seconds the first of what is counted has been in the log."""
        if not stretch.evidence:
            return 0.0
        return max(0.0, (self._clock.now() - stretch.evidence[0].log_time).total_seconds())

    async def _places(self, turn: Turn, groups: Sequence[_Alike]) -> _Places:
        wanted = {cell async for group in in_slices(groups) for cell in cells_of(group.call)}
        known = await turn.tallies(wanted)
        arriving = Counter(cell.page for cell in wanted if cell not in known)
        if not arriving:
            # Nothing is added to any page, so it does not matter how large they are.
            return _Places(known, {}, self._limits)
        sizes = await turn.sizes({cell.page for cell in wanted})
        crowded = {page for page, count in arriving.items() if sizes.get(page, 0) + count > self._limits[page[0]]}
        if crowded:
            known |= await turn.tallies(set(_instead(wanted, crowded)))
        return _Places(known, sizes, self._limits)


class _Places:
    """The cells that calls are counted in: their own while the day has room, then the one of all others."""

    def __init__(self, known: Mapping[Cell, Tally], sizes: Mapping[_Page, int], limits: Mapping[Rollup, int]) -> None:
        self._known, self._limits = dict(known), limits
        self.sizes = dict(sizes)

    async def counted(self, groups: Sequence[_Alike]) -> dict[Cell, Tally]:
        """Count the calls and return every cell that they changed."""
        changed: dict[Cell, Tally] = {}
        async for group in in_slices(groups):
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
            cell = self._place(own.of_tool(tool, version))
            if cell.rollup is Rollup.TOOL:
                # What is too much for the tools' own rollup is too much for the others as well.
                tool, version = cell.tool, cell.version
            yield cell

    def _place(self, cell: Cell) -> Cell:
        if cell in self._known:
            return cell
        if self.sizes.get(cell.page, 0) >= self._limits[cell.rollup]:
            return cell.folded()
        self.sizes[cell.page] = self.sizes.get(cell.page, 0) + 1
        return cell


async def _grouped(evidence: Iterable[Evidence]) -> list[_Alike]:
    """Return the calls that records end, those that are alike together, in the order in which the first of each came."""
    groups: dict[tuple[date, str, str, str, str, str], _Alike] = {}
    async for each in in_slices(evidence):
        call = call_of(each)
        if call is not None:
            alike = (call.moment.date(), call.tool, call.version, call.tenant, call.subject, call.task)
            group = groups.get(alike)
            if group is None:
                group = groups[alike] = _Alike(call, Tally())
            group.tally.add(call)
    return list(groups.values())


def _instead(wanted: Iterable[Cell], crowded: set[_Page]) -> Iterable[Cell]:
    """Yield every cell that may have to take calls of a crowded page."""
    for cell in wanted:
        of_any_tool = cell.of_tool(OTHER, "")
        if cell.page in crowded:
            yield cell.folded()
        if (Rollup.TOOL, cell.day) in crowded:
            yield from (of_any_tool, of_any_tool.folded())
