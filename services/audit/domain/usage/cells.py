"""Where a call is counted: once in each rollup, in the cell of its day and of what that rollup keeps apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from enum import StrEnum
from typing import Any, NamedTuple

from services.audit.domain.usage.call import OTHER, Call


class Rollup(StrEnum):
    """What is kept apart beside the day, from the coarsest to the finest. Questions are put to the coarsest that knows."""

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
# How many cells a day may have in each rollup before what is new goes to the cell of all others.
LIMITS: Mapping[Rollup, int] = {
    Rollup.ALL: 1,
    Rollup.TOOL: 5_000,
    Rollup.TENANT: 10_000,
    Rollup.CALLER: 20_000,
    Rollup.TASK: 20_000,
}


class Cell(NamedTuple):
    """One row of one rollup on one day."""

    rollup: Rollup
    day: date
    tool: str = ""
    version: str = ""
    tenant: str = ""
    subject: str = ""
    task: str = ""

    @property
    def rollup_day(self) -> tuple[Rollup, date]:
        """The day of a rollup that it is on."""
        return self.rollup, self.day

    def of_tool(self, tool: str, version: str) -> Cell:
        """Return the same place for another tool, if the rollup tells tools apart."""
        return self if self.rollup is Rollup.ALL else self._replace(tool=tool, version=version)

    def folded(self) -> Cell:
        """Return the cell of all others: of the same tool, unless it is tools that are too many."""
        if self.rollup is Rollup.TOOL:
            return self._replace(tool=OTHER, version="")
        finer: dict[str, Any] = dict.fromkeys(DIMENSIONS[self.rollup] - DIMENSIONS[Rollup.TOOL], OTHER)
        return self._replace(**finer)


def cells_of(call: Call) -> Iterator[Cell]:
    """Yield the cell of the call in each rollup, from the coarsest to the finest. Without a task there is none for it."""
    day, tool, version = call.moment.date(), call.tool, call.version
    yield Cell(Rollup.ALL, day)
    yield Cell(Rollup.TOOL, day, tool, version)
    yield Cell(Rollup.TENANT, day, tool, version, call.tenant)
    yield Cell(Rollup.CALLER, day, tool, version, call.tenant, call.subject)
    if call.task:
        yield Cell(Rollup.TASK, day, tool, version, call.tenant, call.subject, call.task)


def rollup_for(dimensions: frozenset[str]) -> Rollup:
    """Return the coarsest rollup that keeps all of these apart."""
    return next(rollup for rollup in Rollup if dimensions <= DIMENSIONS[rollup])
