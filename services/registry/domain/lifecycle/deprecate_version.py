"""DeprecateVersion, UndeprecateVersion and SunsetVersion."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from libs.common.errors import MeshError, Violation
from libs.common.runtime.clock import Clock
from libs.common.tool_names import split_version_name
from services.registry.domain.catalog.resolve import effective_state
from services.registry.domain.errors import deprecation_invalid
from services.registry.domain.lifecycle.change_state import change_version
from services.registry.domain.lifecycle.lifecycle import Verb
from services.registry.domain.lifecycle.transitions import ChangeRequest
from services.registry.domain.model import Deprecation, LifecycleState, Standing, VersionHead
from services.registry.domain.ports import Catalogue, Ledger, Wakeup

WARNING = timedelta(days=90)
GRACE = timedelta(days=30)
# States that a successor may have: runnable, or runnable once it is published or set up.
_SUCCESSOR_STATES = frozenset(
    {LifecycleState.AVAILABLE, LifecycleState.DEFERRED, LifecycleState.DRAFT, LifecycleState.REQUIRES_SETUP}
)


@dataclass(frozen=True, slots=True)
class DeprecationNotice:
    """The sunset date, grace period, successor and migration guide of a deprecation."""

    sunset_time: datetime | None = None
    grace: timedelta | None = None
    successor: str = ""
    migration_guide_url: str = ""


async def deprecate_version(
    name: str,
    notice: DeprecationNotice,
    change_request: ChangeRequest,
    *,
    catalogue: Catalogue,
    wakeup: Wakeup,
    clock: Clock,
) -> VersionHead:
    """Deprecate a version, or update its deprecation. Raises INVALID_REQUEST with all violations of dates and
    successor."""

    async def announce(head: VersionHead, standing: Standing, now: datetime, ledger: Ledger) -> Standing:
        sunset = notice.sunset_time or now + WARNING
        removal = _removal(sunset, GRACE if notice.grace is None else notice.grace)
        # Checked under the lock: otherwise two versions could become each other's successor concurrently.
        violations = [
            *_date_violations(sunset, removal, now),
            *await _successor_violations(name, notice.successor, ledger, now),
        ]
        if violations:
            raise deprecation_invalid(violations)
        before = standing.deprecation
        deprecation = Deprecation(
            deprecate_time=before.deprecate_time if before else now,
            sunset_time=sunset,
            successor=notice.successor,
            migration_guide_url=notice.migration_guide_url,
            remove_time=removal,
        )
        return replace(standing, deprecation=deprecation)

    return await change_version(
        name, Verb.DEPRECATE, change_request, catalogue=catalogue, wakeup=wakeup, clock=clock, revise=announce
    )


async def undeprecate_version(
    name: str, change_request: ChangeRequest, *, catalogue: Catalogue, wakeup: Wakeup, clock: Clock
) -> VersionHead:
    """Withdraw a deprecation."""

    async def withdraw(head: VersionHead, standing: Standing, now: datetime, ledger: Ledger) -> Standing:
        return replace(standing, deprecation=None)

    return await change_version(
        name, Verb.UNDEPRECATE, change_request, catalogue=catalogue, wakeup=wakeup, clock=clock, revise=withdraw
    )


def _removal(sunset: datetime, grace: timedelta) -> datetime | None:
    """Return the end of the grace period; None if the date is out of range."""
    try:
        return sunset + grace
    except OverflowError:
        return None


def _date_violations(sunset: datetime, removal: datetime | None, now: datetime) -> list[Violation]:
    if sunset <= now:
        return [Violation("sunset_time", "deprecation.sunset", "must be in the future")]
    message = "plus the grace period exceeds the last possible date"
    return [] if removal else [Violation("sunset_time", "deprecation.sunset", message)]


async def _successor_violations(name: str, successor: str, ledger: Ledger, now: datetime) -> list[Violation]:
    """Return the violations of a successor. It must exist and must not be deprecated itself, so successors cannot form
    a cycle."""
    if not successor:
        return []
    if successor == name:
        return [_violation("deprecation.cycle", "is the version itself")]
    try:
        tool, number = split_version_name(successor)
    except MeshError:
        return [_violation("successor.name", "is not the resource name of a tool version")]
    head = next((h for h in await ledger.heads(tool) if str(h.version) == number), None)
    if head is None:
        return [_violation("successor.exists", "does not exist")]
    if effective_state(head, now) in _SUCCESSOR_STATES and head.standing.deprecation is None:
        return []
    return [_violation("successor.state", f"is {effective_state(head, now).value} and cannot be a successor")]


def _violation(rule: str, message: str) -> Violation:
    return Violation("successor", rule, message)


async def sunset_version(
    name: str, change_request: ChangeRequest, *, catalogue: Catalogue, wakeup: Wakeup, clock: Clock
) -> VersionHead:
    """End a deprecated version now. Its grace period starts now and keeps its length."""

    async def end(head: VersionHead, standing: Standing, now: datetime, ledger: Ledger) -> Standing:
        announced = standing.deprecation
        if announced is None or announced.sunset_time is None:
            return standing
        grace = announced.remove_time - announced.sunset_time if announced.remove_time else GRACE
        return replace(standing, deprecation=replace(announced, sunset_time=now, remove_time=now + grace))

    return await change_version(
        name, Verb.SUNSET, change_request, catalogue=catalogue, wakeup=wakeup, clock=clock, revise=end
    )
