"""The turn of an invocation: its places beside others, within the time that it has."""

from __future__ import annotations

from libs.common.runtime.clock import Clock
from services.executor.domain.invocation import Invocation
from services.executor.domain.scheduling.scheduler import Scheduler, Turn
from services.executor.domain.scheduling.time_limit import in_time
from services.executor.domain.states import State
from services.executor.domain.tool import Tool

# Versions come and go; a process that lives long must not remember each it ever saw.
_MAX_REMEMBERED = 10_000


class Turns:
    """Gives invocations their turn."""

    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        self._scheduler, self._clock = scheduler, clock
        self._free: dict[str, bool] = {}

    def free(self, tool: Tool) -> bool:
        """Say whether calls of the tool need no turn. A version never changes its mind, so it is asked once."""
        known = self._free.get(tool.digest)
        if known is None:
            if len(self._free) >= _MAX_REMEMBERED:
                self._free.clear()
            known = self._free[tool.digest] = self._scheduler.free(tool)
        return known

    def turn(self, invocation: Invocation, tool: Tool) -> InvocationTurn:
        """Return a context in which the call has its places. It should hold them until its effects are real or thrown away.

        Entering it raises QUEUE_FULL when there is no room to wait; DEADLINE_EXCEEDED or TOKEN_EXPIRED when waiting took all the time there
        was. A call that waits is QUEUED.
        """
        arguments = invocation.arguments if invocation.call_input is None else invocation.call_input
        turn = self._scheduler.place(
            tool, arguments, invocation.request.priority, lambda: invocation.enter(State.QUEUED)
        )
        return InvocationTurn(turn, invocation, self._clock)


class InvocationTurn:
    """One invocation's turn."""

    __slots__ = ("_clock", "_invocation", "_turn")

    def __init__(self, turn: Turn, invocation: Invocation, clock: Clock) -> None:
        self._turn, self._invocation, self._clock = turn, invocation, clock

    async def __aenter__(self) -> None:
        async with in_time(self._invocation, self._clock):
            await self._turn.__aenter__()

    async def __aexit__(self, *ending: object) -> None:
        await self._turn.__aexit__(*ending)
