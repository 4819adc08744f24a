"""How tools are used, as far as decisions about them need to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Usage:
    """The calls of a tool or a version in a stretch of time."""

    ran: int = 0
    """Calls that ran to an end of their own: succeeded, failed, or took too long."""
    succeeded: int = 0
    valid_results: float | None = None
    """Which part of them kept to the output schema; None when none ran."""
    within_latency: float | None = None
    """Which part ended within the declared time; None when none was timed."""
    calls: int = 0
    """All calls, refused ones included."""
    last_call: datetime | None = None
    """When it was last called, ever, refused calls included."""

    @property
    def success_rate(self) -> float | None:
        return self.succeeded / self.ran if self.ran else None


class UsageReader(Protocol):
    """Knows how tools are used."""

    async def usages(self, declared: Mapping[str, timedelta | None], since: datetime) -> Mapping[str, Usage]:
        """Return the usage of each tool or version that has an entry, by its resource name, as `usage` does for one; a hundred of
        them at most."""
        ...

    async def usage(self, name: str, since: datetime, declared: timedelta | None = None) -> Usage:
        """Return the usage of a tool or a version by its resource name. `declared` is the time that it promised to
        keep. Raises SERVICE_UNAVAILABLE when that cannot be known now: unknown is never zero."""
        ...
