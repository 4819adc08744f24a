"""Ports of usage counting and queries."""

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
    """An exclusive transaction of counting. Everything saved takes effect at its end, or not at all."""

    async def read_segment(self) -> LogSegment:
        """Return the next uncounted records, limited to what one transaction should count."""
        ...

    async def find_tallies(self, cells: Iterable[Cell]) -> dict[Cell, Tally]:
        """Return the tallies of those cells that exist."""
        ...

    async def count_cells(self, rollup_days: Iterable[tuple[Rollup, date]]) -> dict[tuple[Rollup, date], int]:
        """Return the number of cells by rollup and day; zero may be omitted."""
        ...

    async def save(
        self, tallies: Mapping[Cell, Tally], sizes: Mapping[tuple[Rollup, date], int], position: int
    ) -> None:
        """Replace these cells and cell counts, and the counting position."""
        ...


class UsageStore(Protocol):
    """The counts, for writing."""

    def begin(self) -> AbstractAsyncContextManager[CountingTransaction | None]:
        """Begin a transaction; None while another replica has one. A process that ends rolls its transaction back."""
        ...


class UsageReader(Protocol):
    """The counts, for reading. Each result is from one snapshot between two transactions."""

    async def get_daily_usage(self, query: UsageQuery) -> DailyUsage:
        """Return the total of each day with calls, oldest first."""
        ...

    async def get_tool_usages(self, queries: Sequence[UsageQuery]) -> list[ToolUsage]:
        """Return the usage of tools or versions, one per query, from one snapshot."""
        ...

    async def get_ranking(self, query: UsageQuery, window: RankingWindow) -> RankingPage:
        """Return a part of a ranking, largest first, ties by name."""
        ...
