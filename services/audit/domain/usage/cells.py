"""The cells in which a call is counted: one per rollup, by day and the dimensions of the rollup."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from enum import StrEnum
from typing import Any, NamedTuple

from services.audit.domain.usage.call import OTHER, Call


class Rollup(StrEnum):
    """Levels of aggregation, from the coarsest to the finest. A query reads the coarsest one that has its
    dimensions."""

    ALL = "all"
    TOOL = "tool"
    TENANT = "tenant"
    CALLER = "caller"
    TASK = "task"


DIMENSIONS: Mapping[Rollup, frozenset[str]] = {
    Rollup.ALL: frozenset(),
    Rollup.TOOL: frozenset({"tool", "version"}),
    Rollup.TENANT: frozenset({"tool", "version", "tenant"}),
    Rollup.CALLER: frozenset({"tool", "version", "tenant", "subject"}),
    Rollup.TASK: frozenset({"tool", "version", "tenant", "subject", "task"}),
}
# Cells per rollup and day. Calls of further cells are folded into one overflow cell.
LIMITS: Mapping[Rollup, int] = {
    Rollup.ALL: 1,
    Rollup.TOOL: 5_000,
    Rollup.TENANT: 10_000,
    Rollup.CALLER: 20_000,
    Rollup.TASK: 20_000,
}


class Cell(NamedTuple):
    """One row of a rollup on one day."""

    rollup: Rollup
    day: date
    tool: str = ""
    version: str = ""
    tenant: str = ""
    subject: str = ""
    task: str = ""

    @property
    def rollup_day(self) -> tuple[Rollup, date]:
        """The rollup and the day, for which the number of cells is limited."""
        return self.rollup, self.day

    def of_tool(self, tool: str, version: str) -> Cell:
        """Return the cell with another tool, if the rollup has tools."""
        return self if self.rollup is Rollup.ALL else self._replace(tool=tool, version=version)

    def folded(self) -> Cell:
        """Return the overflow cell: of the same tool, unless the rollup is the one of tools."""
        if self.rollup is Rollup.TOOL:
            return self._replace(tool=OTHER, version="")
        finer: dict[str, Any] = dict.fromkeys(DIMENSIONS[self.rollup] - DIMENSIONS[Rollup.TOOL], OTHER)
        return self._replace(**finer)


def cells_of(call: Call) -> Iterator[Cell]:
    """Yield the cell of a call in each rollup, from the coarsest to the finest. A call without a task has none in the
    task rollup."""
    day, tool, version = call.event_time.date(), call.tool, call.version
    yield Cell(Rollup.ALL, day)
    yield Cell(Rollup.TOOL, day, tool, version)
    yield Cell(Rollup.TENANT, day, tool, version, call.tenant)
    yield Cell(Rollup.CALLER, day, tool, version, call.tenant, call.subject)
    if call.task:
        yield Cell(Rollup.TASK, day, tool, version, call.tenant, call.subject, call.task)


def rollup_for(dimensions: frozenset[str]) -> Rollup:
    """Return the coarsest rollup with all these dimensions."""
    return next(rollup for rollup in Rollup if dimensions <= DIMENSIONS[rollup])
