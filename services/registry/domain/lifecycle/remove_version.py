"""RemoveVersion: retires a version past its sunset once it is no longer called."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from libs.common.errors import MeshError
from libs.common.runtime.clock import Clock
from libs.common.tool_names import split_version_name
from services.registry.domain.catalog.resolve import effective_state
from services.registry.domain.errors import etag_mismatch, grace_not_over, removal_needs_force, usage_unknown
from services.registry.domain.lifecycle.change_state import change_version, find_version, keep_standing
from services.registry.domain.lifecycle.lifecycle import Verb, apply
from services.registry.domain.lifecycle.transitions import ChangeRequest
from services.registry.domain.model import LifecycleState, Standing, VersionHead
from services.registry.domain.namespaces.administration import require_administrator
from services.registry.domain.ports import Catalogue, Ledger, Wakeup
from services.registry.domain.trust.usage import Usage, UsageReader

# A day without calls counts as unused; a version that is still called gets another week.
WINDOW = timedelta(days=1)
EXTENSION = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Removal:
    """The outcome: the version, whether it was removed, and the calls that prevented it."""

    head: VersionHead
    removed: bool
    calls: int = 0


async def remove_version(
    name: str,
    change_request: ChangeRequest,
    *,
    force: bool,
    catalogue: Catalogue,
    usage: UsageReader,
    wakeup: Wakeup,
    clock: Clock,
) -> Removal:
    """Retire the version, or postpone its removal while it is called. Without `force` it must be past its sunset and
    its grace period, and its usage must be known: unknown usage raises SERVICE_UNAVAILABLE."""
    head, done = await _find_version(name, change_request, catalogue)
    if done:
        return Removal(head, removed=head.standing.state is LifecycleState.RETIRED)
    # Read before the lock is taken, so that writers do not wait for another service.
    calls = 0 if force else await _calls(head, usage, clock.now())
    if calls:
        extended = await change_version(
            name, Verb.EXTEND, change_request, catalogue=catalogue, wakeup=wakeup, clock=clock, revise=_extend_grace
        )
        return Removal(extended, removed=False, calls=calls)
    removed = await change_version(
        name,
        Verb.REMOVE,
        change_request,
        catalogue=catalogue,
        wakeup=wakeup,
        clock=clock,
        revise=keep_standing if force else _refuse_during_grace,
    )
    return Removal(removed, removed=True)


async def _find_version(name: str, change_request: ChangeRequest, catalogue: Catalogue) -> tuple[VersionHead, bool]:
    """Return the version, and whether this request was already applied."""
    tool, number = split_version_name(name)
    async with catalogue.writing() as ledger:
        await require_administrator(tool, change_request.actor, ledger)
        head = find_version(tool, number, await ledger.heads(tool))
        verb = (
            await ledger.verb_of(head, change_request.actor.recorded_name, change_request.request_id)
            if change_request.request_id
            else None
        )
    if verb in (Verb.REMOVE, Verb.EXTEND):
        return head, True
    if change_request.etag and change_request.etag != head.standing.etag:
        raise etag_mismatch(head)
    return head, False


async def _calls(head: VersionHead, usage: UsageReader, now: datetime) -> int:
    """Return the number of recent calls of the version; 0 for a draft, which cannot be called."""
    apply(Verb.REMOVE, head, now)
    _refuse_early(head, now)
    if effective_state(head, now) is LifecycleState.DRAFT:
        return 0
    since = now - WINDOW
    try:
        recent = await usage.usage(head.name, since)
    except MeshError as error:
        raise usage_unknown() from error
    return _recent_calls(recent, since)


def _recent_calls(usage: Usage, since: datetime) -> int:
    # Usage is counted by day and may include older calls; the time of the last call shows whether any is recent.
    recent = usage.last_call is not None and usage.last_call > since
    return max(usage.calls, 1) if recent else 0


def _refuse_early(head: VersionHead, now: datetime) -> None:
    state = effective_state(head, now)
    if state is LifecycleState.QUARANTINED:
        raise removal_needs_force(head)
    deprecation = head.standing.deprecation
    if state is LifecycleState.SUNSET and deprecation and deprecation.remove_time and deprecation.remove_time > now:
        raise grace_not_over(head)


async def _refuse_during_grace(head: VersionHead, standing: Standing, now: datetime, ledger: Ledger) -> Standing:
    _refuse_early(head, now)
    return standing


async def _extend_grace(head: VersionHead, standing: Standing, now: datetime, ledger: Ledger) -> Standing:
    deprecation = standing.deprecation
    if deprecation is None:
        return standing
    return replace(standing, deprecation=replace(deprecation, remove_time=now + EXTENSION))
