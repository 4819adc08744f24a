"""Usage statistics of tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Usage:
    """The calls of a tool or a version in a period."""

    ran: int = 0
    """Completed calls: succeeded, failed or timed out."""
    succeeded: int = 0
    valid_results: float | None = None
    """The share with a valid result; None without completed calls."""
    within_latency: float | None = None
    """The share within the declared time; None without timed calls."""
    calls: int = 0
    """All calls, including refused ones."""
    last_call: datetime | None = None
    """The time of the last call ever, including refused ones."""

    @property
    def success_rate(self) -> float | None:
        return self.succeeded / self.ran if self.ran else None


class UsageReader(Protocol):
    """Reads usage statistics."""

    async def usages(self, declared: Mapping[str, timedelta | None], since: datetime) -> Mapping[str, Usage]:
        """Return the usage of up to a hundred tools or versions by resource name. Raises SERVICE_UNAVAILABLE when
        unknown."""
        ...

    async def usage(self, name: str, since: datetime, declared: timedelta | None = None) -> Usage:
        """Return the usage of a tool or a version. `declared` is its declared time limit. Raises SERVICE_UNAVAILABLE
        when the usage is unknown: unknown is never zero."""
        ...
