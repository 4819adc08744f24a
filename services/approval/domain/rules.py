"""The rules of a deployment: escalation, the lifetime of approvals, and break-glass groups."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate
from typing import NamedTuple

MAX_LIFETIME = timedelta(days=7)
DEFAULT_STEPS = (timedelta(hours=1), timedelta(hours=4), timedelta(hours=24))
DEFAULT_FRACTION = 0.5


class Schedule(NamedTuple):
    """The times of a ticket, from its creation on."""

    lifetime: timedelta
    """When it ends in denial."""
    escalations: tuple[timedelta, ...]
    """When each group after the first is asked too. All are before the end."""


@dataclass(frozen=True, slots=True)
class ApprovalRules:
    """How tickets escalate and end. No rule approves by time: there is no field that could say so."""

    steps: tuple[timedelta, ...] = DEFAULT_STEPS
    """How long each group of a chain has before the next is asked; the last step counts for all further groups."""
    fraction: float | None = None
    """Set to escalate within this fraction of the lifetime instead, evenly over the chain."""
    timeout: timedelta = DEFAULT_STEPS[0]
    """The lifetime of a ticket that escalates by fraction."""
    approval_lifetime: timedelta = timedelta(minutes=30)
    """How long an approval can be redeemed."""
    max_open: int = 100
    """The most open tickets of one requester, so that no caller floods the approvers."""
    break_glass_groups: frozenset[str] = frozenset()
    """The groups whose members may override a quorum."""

    def schedule(self, groups: int, lifetime: timedelta | None = None) -> Schedule:
        """Return the times of a ticket that asks so many groups. A given lifetime is divided by fraction."""
        if lifetime is None and self.fraction is None:
            steps = [self.steps[min(index, len(self.steps) - 1)] for index in range(groups)]
            ends = list(accumulate(steps))
            whole = min(ends[-1], MAX_LIFETIME)
            return Schedule(whole, tuple(end for end in ends[:-1] if end < whole))
        whole = min(lifetime or self.timeout, MAX_LIFETIME)
        fraction = self.fraction or DEFAULT_FRACTION
        return Schedule(whole, tuple(whole * fraction * (index + 1) / groups for index in range(groups - 1)))
