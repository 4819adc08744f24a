"""The announcements of executors, and whether one of them can run a tool."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from libs.common.errors import Violation
from services.registry.domain.runners.need import RunnerNeed

# From the weakest to the strongest sandbox. A stronger one may stand in for a weaker one.
TIERS = ("process", "kernel", "machine")
_SHOWN_NAMES = 10

_RUNNER, _TIER = "manifest.execution.runner", "manifest.interface.safety.sandbox_tier"
_ENTRY_POINT = "manifest.execution.entry_point"


@dataclass(frozen=True, slots=True)
class Announcement:
    """What one executor can run."""

    instance: str
    process_id: str
    runners: frozenset[str]
    tiers: frozenset[str]
    packs: frozenset[str]

    def runs(self, need: RunnerNeed) -> bool:
        """Return whether this executor can run a tool with this need."""
        return need.kind in self.runners and self.confines(need.tier) and self.holds(need.pack)

    def confines(self, tier: str) -> bool:
        """Return whether it has a sandbox of the tier or a stronger one; true for no tier."""
        return not tier or not self.tiers.isdisjoint(TIERS[TIERS.index(tier) :])

    def holds(self, pack: str) -> bool:
        """Return whether it has a tool pack; true for none."""
        return not pack or pack in self.packs


@dataclass(frozen=True, slots=True)
class RunnerSet:
    """The announcements whose lease has not ended."""

    announcements: tuple[Announcement, ...] = ()

    def missing(self, need: RunnerNeed) -> Violation | None:
        """Return what no executor has for a tool; None if one can run it."""
        if any(announcement.runs(need) for announcement in self.announcements):
            return None
        if not self.announcements:
            return Violation(_RUNNER, "runner.none", "no executor is announced")
        able = [announcement for announcement in self.announcements if need.kind in announcement.runners]
        if not able:
            announced = _listed(kind for each in self.announcements for kind in each.runners)
            return Violation(_RUNNER, "runner.none", f"no executor has the runner {need.kind}; there are {announced}")
        if not any(announcement.holds(need.pack) for announcement in able):
            loaded = _listed(pack for each in able for pack in each.packs)
            return Violation(
                _ENTRY_POINT, "runner.pack", f"no executor has loaded the tool pack {need.pack}; there are {loaded}"
            )
        tiers = _listed(tier for each in able if each.holds(need.pack) for tier in each.tiers)
        return Violation(
            _TIER, "runner.sandbox", f"no executor that could run it has a {need.tier} sandbox; there are {tiers}"
        )


def _listed(names: Iterable[str]) -> str:
    distinct = sorted(set(names))
    if not distinct:
        return "none"
    more = f" and {len(distinct) - _SHOWN_NAMES} more" if len(distinct) > _SHOWN_NAMES else ""
    return ", ".join(distinct[:_SHOWN_NAMES]) + more
