"""Gives each invocation a scheduler slot, within the time that it has."""

from __future__ import annotations

from libs.common.runtime.bounded_cache import BoundedCache
from libs.common.runtime.clock import Clock
from services.executor.domain.invocation import Invocation
from services.executor.domain.results.obligations import allowed_priority
from services.executor.domain.scheduling.scheduler import Owner, Scheduler, Slot
from services.executor.domain.scheduling.time_limit import limit_wait
from services.executor.domain.states import State
from services.executor.domain.tool import Tool

# Versions come and go; a process that lives long must not remember all of them.
_MAX_REMEMBERED = 10_000


class SlotPool:
    """Gives invocations their slots."""

    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        self._scheduler, self._clock = scheduler, clock
        self._slotless: BoundedCache[str, bool] = BoundedCache(_MAX_REMEMBERED)

    def needs_no_slot(self, tool: Tool) -> bool:
        """Return whether calls of the tool run without a slot. Computed once per version."""
        known = self._slotless.get(tool.digest)
        return self._slotless.put(tool.digest, self._scheduler.needs_no_slot(tool)) if known is None else known

    def slot(self, invocation: Invocation, tool: Tool) -> InvocationSlot:
        """Return a context manager that holds the slot of a call, until its effects are committed or rolled back.

        Entering it raises QUEUE_FULL when the queue is full; DEADLINE_EXCEEDED or TOKEN_EXPIRED when the wait takes all
        the time there is. A call that waits is QUEUED.
        """
        arguments = invocation.arguments if invocation.call_input is None else invocation.call_input
        caller = invocation.request.caller
        slot = self._scheduler.slot(
            tool,
            arguments,
            priority_of(invocation, tool),
            lambda: invocation.enter(State.QUEUED),
            Owner(caller.tenant, caller.subject),
            invocation.resources,
        )
        return InvocationSlot(slot, invocation, self._clock)


class InvocationSlot:
    """The slot of one invocation, with its time limit."""

    __slots__ = ("_clock", "_invocation", "_slot")

    def __init__(self, slot: Slot, invocation: Invocation, clock: Clock) -> None:
        self._slot, self._invocation, self._clock = slot, invocation, clock

    async def __aenter__(self) -> None:
        async with limit_wait(self._invocation, self._clock):
            await self._slot.__aenter__()

    async def __aexit__(self, *raised: object) -> None:
        await self._slot.__aexit__(*raised)


def priority_of(invocation: Invocation, tool: Tool) -> int:
    """Return the priority that the caller asks for, at most that of the tool or the one that policy allows."""
    allowed = tool.placement.priority if invocation.decision is None else allowed_priority(invocation.decision, tool)
    return min(invocation.request.priority or tool.placement.priority, allowed)
