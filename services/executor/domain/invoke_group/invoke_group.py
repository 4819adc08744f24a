"""Invokes a group of calls: each is a call of its own, some depend on others, and a failure may cancel its siblings.

Every call has an outcome, in the order of the calls, and every outcome is recorded, also of a canceled call and of one
that was not started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Protocol

from libs.common.errors import MeshError
from libs.common.ids import new_id
from libs.common.runtime.clock import Clock
from services.executor.domain import errors
from services.executor.domain.invoke_group.plan import GroupCall, Step, plan
from services.executor.domain.model import Caller, Request, Result
from services.executor.domain.ports import ToolView
from services.executor.domain.results.size_limits import size_beside
from services.executor.domain.scheduling.heavy_work import HeavyWork
from services.executor.domain.tool import SiblingFailure, Tool

# The total size of the results of a group: with their envelopes they must fit into one message.
MAX_BYTES = 3 * 1024 * 1024
# Of one group so many calls run at once, so that the calls of others come in between.
MAX_RUNNING = 16
# The arguments of a group that is planned on the event loop.
INLINE_BYTES = 16 * 1024


class Calls(Protocol):
    """Executes single calls."""

    async def execute(self, request: Request) -> Result:
        """Return the result of a call, or raise MeshError."""
        ...

    def stop(self, request: Request, error: MeshError) -> bool:
        """Cancel the call of this very request with the error. Return whether it was canceled."""
        ...

    async def record_not_started(self, request: Request, error: MeshError) -> MeshError:
        """Record that a call is not started, and why. Return the error of its caller."""
        ...

    async def record_abandoned(self, request: Request) -> None:
        """Record that a call is not started because its caller left, or its time was over."""
        ...


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """The outcome of one call: a result or an error."""

    result: Result | None
    error: MeshError | None
    result_id: str
    ended: datetime
    tool: Tool | None


class InvokeGroup:
    """Runs groups of calls."""

    def __init__(
        self,
        calls: Calls,
        tools: ToolView,
        clock: Clock,
        heavy_work: HeavyWork,
        *,
        revoked: Callable[[Caller], bool],
    ) -> None:
        """`revoked` returns whether the token of a caller is revoked: a call may start long after its group was
        authenticated.
        """
        self._calls, self._tools, self._clock, self._revoked = calls, tools, clock, revoked
        self._heavy_work = heavy_work

    async def execute(self, calls: Sequence[GroupCall]) -> tuple[GroupOutcome, ...]:
        """Return the outcome of each call. Raises INVALID_REQUEST for invalid dependencies, before any call starts."""
        group = _Group(await self._plan(calls), self._calls, self._clock, self._revoked)
        async with asyncio.TaskGroup() as tasks:
            for index in range(len(calls)):
                tasks.create_task(group.run(index))
        return _limit_size([group.outcomes[index] for index in range(len(calls))])

    async def _plan(self, calls: Sequence[GroupCall]) -> Sequence[Step]:
        """Plan the group: at once if its arguments are small, else beside the event loop."""
        if sum(len(call.request.arguments) for call in calls) <= INLINE_BYTES:
            return plan(calls, self._tools)
        return await self._heavy_work.run(calls[0].request.caller, partial(plan, calls, self._tools))


def _limit_size(outcomes: Sequence[GroupOutcome]) -> tuple[GroupOutcome, ...]:
    """Replace every result that does not fit after those before it by RESULT_TOO_LARGE.

    Its call succeeded and is recorded as such; a retry with its key on its own returns it.
    """
    fitting: list[GroupOutcome] = []
    left = MAX_BYTES
    for outcome in outcomes:
        size = 0 if outcome.result is None else len(outcome.result.content) + size_beside(outcome.result)
        if outcome.result is None or size <= left:
            left -= size
            fitting.append(outcome)
        else:
            fitting.append(replace(outcome, result=None, error=errors.no_room_in_group(outcome.result, size, left)))
    return tuple(fitting)


class _Group:
    """One group under way."""

    def __init__(self, steps: Sequence[Step], calls: Calls, clock: Clock, revoked: Callable[[Caller], bool]) -> None:
        self._steps, self._calls, self._clock, self._revoked = steps, calls, clock, revoked
        self._over = [asyncio.Event() for _ in steps]
        self._running = asyncio.Semaphore(MAX_RUNNING)
        self._under_way: set[int] = set()
        self._stopped: dict[int, MeshError] = {}
        self.outcomes: dict[int, GroupOutcome] = {}

    async def run(self, index: int) -> None:
        """Execute one call, after the calls that must end before it."""
        step = self._steps[index]
        await self._wait(step)
        try:
            refused = self._stopped.get(index) or self._revocation_error(step) or self._dependency_error(step)
            if refused is not None:
                self._set_outcome(index, None, await self._calls.record_not_started(step.call.request, refused))
            else:
                await self._call(index, step)
        finally:
            self._running.release()
        self._over[index].set()

    async def _wait(self, step: Step) -> None:
        """Wait for the calls that must end before, and until few enough run.

        If the caller leaves, the call is recorded as abandoned.
        """
        try:
            for earlier in step.after:
                await self._over[earlier].wait()
            await self._running.acquire()
        except asyncio.CancelledError:
            await self._calls.record_abandoned(step.call.request)
            raise

    async def _call(self, index: int, step: Step) -> None:
        self._under_way.add(index)
        try:
            self._set_outcome(index, await self._calls.execute(step.call.request), None)
        except MeshError as error:
            self._set_outcome(index, None, error)
            if step.on_failure is SiblingFailure.CANCEL_SIBLINGS:
                self._stop_siblings(index, error)
        finally:
            self._under_way.discard(index)

    def _revocation_error(self, step: Step) -> MeshError | None:
        return errors.authority_revoked() if self._revoked(step.call.request.caller) else None

    def _dependency_error(self, step: Step) -> MeshError | None:
        for needed in step.call.depends_on:
            failure = self.outcomes[needed].error
            if failure is not None:
                return errors.sibling_failed(needed, failure)
        return None

    def _stop_siblings(self, index: int, failure: MeshError) -> None:
        """Cancel every sibling that has not ended and is not being canceled already."""
        for other, step in enumerate(self._steps):
            if other in self.outcomes or other in self._stopped:
                continue
            stopped = errors.sibling_failed(index, failure)
            if other not in self._under_way or self._calls.stop(step.call.request, stopped):
                self._stopped[other] = stopped

    def _set_outcome(self, index: int, result: Result | None, error: MeshError | None) -> None:
        result_id = new_id() if result is None else result.result_id
        self.outcomes[index] = GroupOutcome(result, error, result_id, self._clock.now(), self._steps[index].tool)
