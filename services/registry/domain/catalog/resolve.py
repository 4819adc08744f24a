"""Resolves a version constraint to one version. Pure: the result depends only on the versions, the constraint and the
time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from libs.common.semver import Constraint
from libs.common.tool_names import ToolName
from services.registry.domain.errors import version_may_not_run, version_not_found, version_past_sunset
from services.registry.domain.model import LifecycleState, VersionHead

# A deferred version runs like any other; only its schema is loaded later.
CHOSEN_FIRST = frozenset({LifecycleState.AVAILABLE, LifecycleState.DEFERRED})
# A version past its sunset ends up retired, so both states point to the successor.
PAST_SUNSET = frozenset({LifecycleState.SUNSET, LifecycleState.RETIRED})


def resolve(tool: ToolName, heads: Sequence[VersionHead], constraint: str, now: datetime) -> VersionHead:
    """Return the highest matching version that is not deprecated, else the highest deprecated version that still runs.

    If versions match and none may run, the highest one determines the error: TOOL_DEPRECATED or TOOL_UNAVAILABLE. If
    none matches: TOOL_VERSION_NOT_FOUND. A pre-release matches only a constraint that names it exactly. While a version
    of a higher major is quarantined, TOOL_UNAVAILABLE: an older major is another contract, so a caller must ask for it.
    """
    matching = matches(heads, constraint)
    if not matching:
        raise version_not_found(tool, constraint)
    chosen = _choose(matching, now)
    if chosen is not None:
        return chosen
    highest = _newer_major_held(matching, _runnable(matching, now)) or matching[-1]
    if effective_state(highest, now) in PAST_SUNSET:
        raise version_past_sunset(highest)
    raise version_may_not_run(highest)


def latest(heads: Sequence[VersionHead], now: datetime) -> VersionHead | None:
    """Return the version that `latest` resolves to; None when no version may run."""
    return _choose(matches(heads, ""), now)


def latest_for_new_work(heads: Sequence[VersionHead]) -> VersionHead | None:
    """Return the highest release that is neither deprecated nor withdrawn; None when there is none."""
    return next((h for h in reversed(matches(heads, "")) if h.standing.state in CHOSEN_FIRST), None)


def matches(heads: Sequence[VersionHead], constraint: str) -> list[VersionHead]:
    """Return the versions that a constraint accepts, highest last. Raises INVALID_REQUEST for an invalid constraint."""
    meant = Constraint.parse(constraint).means
    return sorted((head for head in heads if meant(head.version)), key=lambda head: head.version)


def effective_state(head: VersionHead, now: datetime) -> LifecycleState:
    """Return the state as of now. A deprecated version is past its sunset from that time on, even before the sweep
    stores it."""
    standing = head.standing
    if standing.state is not LifecycleState.DEPRECATED or standing.deprecation is None:
        return standing.state
    sunset = standing.deprecation.sunset_time
    return LifecycleState.SUNSET if sunset is not None and sunset <= now else standing.state


def _choose(matching: Sequence[VersionHead], now: datetime) -> VersionHead | None:
    chosen = _runnable(matching, now)
    return None if _newer_major_held(matching, chosen) else chosen


def _newer_major_held(matching: Sequence[VersionHead], chosen: VersionHead | None) -> VersionHead | None:
    """Return the highest quarantined version of a higher major than the chosen one."""
    held = (head for head in reversed(matching) if head.standing.state is LifecycleState.QUARANTINED)
    return next((head for head in held if chosen is not None and head.version.major > chosen.version.major), None)


def _runnable(matching: Sequence[VersionHead], now: datetime) -> VersionHead | None:
    for states in (CHOSEN_FIRST, frozenset({LifecycleState.DEPRECATED})):
        for head in reversed(matching):
            if effective_state(head, now) in states:
                return head
    return None
