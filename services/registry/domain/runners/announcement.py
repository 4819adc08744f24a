"""The announcements of executors, and whether one of them can run a tool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from libs.common.errors import Violation
from services.registry.domain.runners.need import LIMIT_FIELDS, RunnerNeed

# From the weakest to the strongest sandbox. A stronger one may stand in for a weaker one.
TIERS = ("process", "kernel", "machine")
_SHOWN_NAMES = 10

_RUNNER, _TIER = "manifest.execution.runner", "manifest.interface.safety.sandbox_tier"
_ENTRY_POINT, _LIMITS = "manifest.execution.entry_point", "manifest.execution.resource_limits"


class CircuitState(StrEnum):
    """Whether calls of an external service pass."""

    CLOSED = "closed"
    HALF_OPEN = "half_open"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Circuit:
    """The circuit of an external service, as one executor saw it."""

    name: str
    """The namespace of its tools and the service, such as `acme/https://api.example.com`."""
    state: CircuitState
    change_time: datetime


@dataclass(frozen=True, slots=True)
class Announcement:
    """What one executor can run."""

    instance: str
    process_id: str
    runners: frozenset[str]
    tiers: frozenset[str]
    packs: frozenset[str]
    unkept: frozenset[tuple[str, str]] = frozenset()
    """The limits that its sandboxes do not keep, each as tier and limit."""
    circuits: tuple[Circuit, ...] = ()
    """The circuits that it saw change lately."""

    def runs(self, need: RunnerNeed) -> bool:
        """Return whether this executor can run a tool with this need."""
        return need.kind in self.runners and self.confines(need.tier, need.limits) and self.holds(need.pack)

    def confines(self, tier: str, limits: frozenset[str] = frozenset()) -> bool:
        """Return whether it has a sandbox of the tier, or a stronger one, that keeps these limits; true for no tier."""
        return not tier or any(
            candidate in self.tiers and not any((candidate, limit) in self.unkept for limit in limits)
            for candidate in TIERS[TIERS.index(tier) :]
        )

    def holds(self, pack: str) -> bool:
        """Return whether it has a tool pack; true for none."""
        return not pack or pack in self.packs


@dataclass(frozen=True, slots=True)
class RunnerSet:
    """The announcements whose lease has not ended."""

    announcements: tuple[Announcement, ...] = ()

    def circuits(self) -> Mapping[str, CircuitState]:
        """Return the state of every circuit that an executor saw change lately, by name. The last change counts."""
        seen = sorted((each for one in self.announcements for each in one.circuits), key=lambda each: each.change_time)
        return {circuit.name: circuit.state for circuit in seen}

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
        holding = [announcement for announcement in able if announcement.holds(need.pack)]
        if not any(announcement.confines(need.tier) for announcement in holding):
            tiers = _listed(tier for each in holding for tier in each.tiers)
            return Violation(
                _TIER, "runner.sandbox", f"no executor that could run it has a {need.tier} sandbox; there are {tiers}"
            )
        return _unkept(need, holding)


def _unkept(need: RunnerNeed, holding: Iterable[Announcement]) -> Violation:
    """Name the limits that no executor keeps for a tool that one could run without them."""
    together = frozenset(need.limits)
    alone = [
        limit for limit in sorted(together) if not any(each.confines(need.tier, frozenset({limit})) for each in holding)
    ]
    fields = [LIMIT_FIELDS[limit] for limit in alone or sorted(together)]
    names = [field.rpartition(".")[2] for field in fields]
    return Violation(
        fields[0] if len(fields) == 1 else _LIMITS,
        "runner.limit",
        f"no executor that could run it keeps {' and '.join(names)}: {_advice(alone or together)}, or leave it out",
    )


def _advice(limits: Iterable[str]) -> str:
    needed = set(limits)
    if needed == {"volumes"}:
        return "choose a sandbox tier that has volumes there"
    groups = "give an executor control groups"
    return f"{groups} and a sandbox with volumes" if "volumes" in needed else groups


def _listed(names: Iterable[str]) -> str:
    distinct = sorted(set(names))
    if not distinct:
        return "none"
    more = f" and {len(distinct) - _SHOWN_NAMES} more" if len(distinct) > _SHOWN_NAMES else ""
    return ", ".join(distinct[:_SHOWN_NAMES]) + more
