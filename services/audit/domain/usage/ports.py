"""What counting and asking about usage need from outside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import date
from typing import Protocol

from services.audit.domain.usage.call import LogSegment
from services.audit.domain.usage.cells import Cell, Rollup
from services.audit.domain.usage.model import DailyUsage, RankingPage, RankingWindow, ToolUsage, UsageQuery
from services.audit.domain.usage.tally import Tally


class CountingTransaction(Protocol):
    """The exclusive right to count what comes next. Whatever is kept in it becomes true when it ends well, all of it
    at once, or never."""

    async def read_segment(self) -> LogSegment:
        """Return the next records that were not counted, as many as one turn should take."""
        ...

    async def find_tallies(self, cells: Iterable[Cell]) -> dict[Cell, Tally]:
        """Return those of the cells that exist."""
        ...

    async def count_cells(self, pages: Iterable[tuple[Rollup, date]]) -> dict[tuple[Rollup, date], int]:
        """Return how many cells each page holds; a page without any may be left out."""
        ...

    async def save(
        self, tallies: Mapping[Cell, Tally], sizes: Mapping[tuple[Rollup, date], int], position: int
    ) -> None:
        """Replace these cells and sizes, and the place where counting stands."""
        ...


class UsageStore(Protocol):
    """The counts, as whoever counts sees them."""

    def begin(self) -> AbstractAsyncContextManager[CountingTransaction | None]:
        """Take a turn; None while another replica has one. A turn whose process ends has kept nothing."""
        ...


class UsageReader(Protocol):
    """The counts, as whoever asks sees them. Each answer shows them as they were at one moment, between two turns."""

    async def get_daily_usage(self, query: UsageQuery) -> DailyUsage:
        """Return the total of each day that had calls, the oldest first."""
        ...

    async def get_tool_usages(self, query: Sequence[UsageQuery]) -> list[ToolUsage]:
        """Return what is known of tools or versions, each of which a `Wanted` names; all of it as of one moment."""
        ...

    async def get_ranking(self, query: UsageQuery, ranking: RankingWindow) -> RankingPage:
        """Return a part of a ranking, the largest first and equals by name."""
        ...
