"""The lifecycle sweep: stores the state changes that are due by date. Readers see them before the sweep runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import Clock
from services.registry.domain.errors import verb_not_applicable
from services.registry.domain.lifecycle.change_state import change_version
from services.registry.domain.lifecycle.lifecycle import Verb
from services.registry.domain.lifecycle.remove_version import Removal, remove_version
from services.registry.domain.lifecycle.transitions import ChangeRequest
from services.registry.domain.model import Actor, Standing, VersionHead
from services.registry.domain.ports import Catalogue, Histories, Ledger, Wakeup
from services.registry.domain.trust.usage import UsageReader

BATCH = 100
SWEEPER = Actor("registry")
# The version was changed by another replica or caller since it was listed.
_OVERTAKEN = frozenset({Reason.FAILED_PRECONDITION, Reason.TOOL_VERSION_NOT_FOUND, Reason.ETAG_MISMATCH})


@dataclass(frozen=True, slots=True)
class SweepReport:
    """The versions that one sweep changed."""

    ended: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    still_called: tuple[tuple[str, int], ...] = ()
    """Versions past their grace period that are still called, with the number of calls."""


async def sweep_lifecycle(
    *, histories: Histories, catalogue: Catalogue, usage: UsageReader, wakeup: Wakeup, clock: Clock, force: bool = False
) -> SweepReport:
    """Mark versions past their sunset, and retire unused versions past their grace period; `force` retires used ones,
    too. Raises SERVICE_UNAVAILABLE when usage is unknown; the next sweep tries again."""
    ended = []
    change_request = ChangeRequest(SWEEPER, reason="the sunset date has passed")
    for name in await histories.past_sunset(clock.now(), BATCH):
        try:
            await change_version(
                name,
                Verb.EXPIRE,
                change_request,
                catalogue=catalogue,
                wakeup=wakeup,
                clock=clock,
                revise=_refuse_marked,
            )
        except MeshError as error:
            if error.reason not in _OVERTAKEN:
                raise
        else:
            ended.append(name)
    removals = await _remove(histories, catalogue, usage, wakeup, clock, force=force)
    removed = tuple(removal.head.name for removal in removals if removal.removed)
    still_called = tuple((removal.head.name, removal.calls) for removal in removals if not removal.removed)
    return SweepReport(tuple(ended), removed, still_called)


async def _remove(
    histories: Histories, catalogue: Catalogue, usage: UsageReader, wakeup: Wakeup, clock: Clock, *, force: bool
) -> list[Removal]:
    change_request = ChangeRequest(SWEEPER, reason="the grace period is over")
    done = []
    for name in await histories.past_grace(clock.now(), BATCH):
        try:
            removal = await remove_version(
                name, change_request, force=force, catalogue=catalogue, usage=usage, wakeup=wakeup, clock=clock
            )
        except MeshError as error:
            if error.reason not in _OVERTAKEN:
                raise
        else:
            done.append(removal)
    return done


async def _refuse_marked(head: VersionHead, standing: Standing, now: datetime, ledger: Ledger) -> Standing:
    """Refuse a version that another replica has already marked."""
    if head.standing.state is standing.state:
        raise verb_not_applicable(head, Verb.EXPIRE, standing.state)
    return standing
