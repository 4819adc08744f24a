"""Upgrades parts one by one. A part that does not become ready, or that fails calls, gets its former pods back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from localmesh.upgrade.call_counts import CallCounts, CallWindow
from localmesh.upgrade.deployments import Deployments, Template

# Called services before their callers.
ORDER = ("audit", "authz", "registry", "approval", "executor", "gateway", "envoy")
POLL_SECONDS = 1.0
# Fewer calls say too little to stop before the end of the window.
_FEW_CALLS = 50


class Meter(Protocol):
    """Counts calls by pod."""

    def read(self) -> Mapping[str, CallCounts]:
        """Return the counts of the pods that are there."""
        ...


@dataclass(frozen=True)
class UpgradeLimits:
    """When an upgrade of a part is stopped."""

    error_rate: float = 0.01
    window_seconds: float = 60.0
    """How long calls are watched after a part has become ready."""
    rollout_seconds: float = 600.0


@dataclass(frozen=True)
class Stopped:
    """Why an upgrade ended early, and whether the part serves with its former pods again."""

    part: str
    reason: str
    undone: bool


class ProgressiveUpgrade:
    """Changes parts and watches what becomes of calls."""

    def __init__(
        self,
        deployments: Deployments,
        meter: Meter,
        limits: UpgradeLimits,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._deployments, self._meter, self._limits, self._say = deployments, meter, limits, say
        self._clock, self._pause = clock, pause

    def run(self, templates: Mapping[str, Template]) -> Stopped | None:
        """Give parts their new templates in the order of an upgrade. Return why it stopped; None if it did not."""
        for part in (part for part in ORDER if part in templates):
            former = self._deployments.read_template(part)
            if former == templates[part]:
                self._say(f"{part}: has this version")
                continue
            self._say(f"{part}: upgrading")
            if reason := self._upgrade(part, templates[part]):
                self._say(f"{part}: {reason}; undoing")
                return Stopped(part, reason, self._undo(part, former))
        return None

    def _upgrade(self, part: str, template: Template) -> str:
        """Return why the upgrade of a part must be undone; empty if it is done."""
        window = CallWindow(self._meter.read())
        self._deployments.replace_template(part, template)
        started = self._clock()
        ready: float | None = None
        while ready is None or self._clock() < ready + self._limits.window_seconds:
            self._pause(POLL_SECONDS)
            counts = window.add(self._meter.read())
            if counts.calls >= _FEW_CALLS and counts.error_rate > self._limits.error_rate:
                return _describe(counts)
            rollout = self._deployments.read_rollout(part)
            ready = self._clock() if ready is None and rollout.complete else ready
            if ready is None and self._clock() > started + self._limits.rollout_seconds:
                return f"not ready after {self._limits.rollout_seconds:.0f} s: {rollout.detail}"
        if counts.error_rate > self._limits.error_rate:
            return _describe(counts)
        self._say(f"{part}: ready after {ready - started:.0f} s; {_describe(counts)}")
        return ""

    def _undo(self, part: str, former: Template) -> bool:
        self._deployments.replace_template(part, former)
        deadline = self._clock() + self._limits.rollout_seconds
        while not self._deployments.read_rollout(part).complete:
            if self._clock() > deadline:
                return False
            self._pause(POLL_SECONDS)
        return True


def _describe(counts: CallCounts) -> str:
    if not counts.calls:
        return "no calls to judge by"
    return f"{counts.failed:.0f} of {counts.calls:.0f} calls failed ({counts.error_rate:.2%})"
