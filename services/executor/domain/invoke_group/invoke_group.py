"""Several calls as one group: each is a call of its own, some wait for others, and a failure may stop its siblings.

Every call has an outcome, in the order of the calls, and every outcome is on record: also of a call that was stopped, and of one that
never began.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from libs.common.errors import MeshError
from libs.common.ids import new_id
from libs.common.runtime.clock import Clock
from services.executor.domain import errors
from services.executor.domain.invoke_group.plan import GroupCall, Step, plan
from services.executor.domain.model import Caller, Request, Result
from services.executor.domain.ports import ToolView
from services.executor.domain.results.size_limits import size_beside
from services.executor.domain.tool import SiblingFailure, Tool

# What the results of a group may hold together: with their envelopes they must fit into one message.
MAX_BYTES = 3 * 1024 * 1024


class Calls(Protocol):
    """Calls, one at a time."""

    async def execute(self, request: Request) -> Result:
        """Return the result of a call, or raise MeshError."""
        ...

    def stop(self, request: Request, error: MeshError) -> bool:
        """End the call of this very request if it is under way: on record, and answered with the error. Say whether it was; one that is
        just ending keeps its own ending."""
        ...

    async def record_not_started(self, request: Request, error: MeshError) -> MeshError:
        """Put on record that a call was not begun, and why. Return what its caller gets."""
        ...

    async def record_abandoned(self, request: Request) -> None:
        """Put on record that a call was not begun because its caller left, or its time was over, before its turn came."""
        ...


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """What became of one call: a result, or an error. With an error, the rest says what the mesh answers in the tool's place."""

    result: Result | None
    error: MeshError | None
    result_id: str
    ended: datetime
    tool: Tool | None


class InvokeGroup:
    """Runs groups of calls."""

    def __init__(self, calls: Calls, tools: ToolView, clock: Clock, *, revoked: Callable[[Caller], bool]) -> None:
        """`revoked` says whether the authority of a caller was taken back. The token of a group is looked at when it comes, and that may
        be long before its last call begins."""
        self._calls, self._tools, self._clock, self._revoked = calls, tools, clock, revoked

    async def execute(self, calls: Sequence[GroupCall]) -> tuple[GroupOutcome, ...]:
        """Return what became of each call. Raises INVALID_REQUEST when they cannot be put in an order; nothing has begun then."""
        group = _Group(plan(calls, self._tools), self._calls, self._clock, self._revoked)
        async with asyncio.TaskGroup() as tasks:
            for place in range(len(calls)):
                tasks.create_task(group.take(place))
        return _fitting([group.outcomes[place] for place in range(len(calls))])


def _fitting(outcomes: Sequence[GroupOutcome]) -> tuple[GroupOutcome, ...]:
    """Return the outcomes with RESULT_TOO_LARGE for every result that has no room beside those before it. Its call succeeded and is on record
    as that; with its key, it can be asked for again on its own."""
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
        self._under_way: set[int] = set()
        self._stopped: dict[int, MeshError] = {}
        self.outcomes: dict[int, GroupOutcome] = {}

    async def take(self, place: int) -> None:
        """See one call through, once everything that must be over before it is."""
        step = self._steps[place]
        await self._turn(step)
        refused = self._stopped.get(place) or self._withdrawn(step) or self._dependency_failed(step)
        if refused is not None:
            self._note(place, None, await self._calls.record_not_started(step.call.request, refused))
        else:
            await self._call(place, step)
        self._over[place].set()

    async def _turn(self, step: Step) -> None:
        """Wait for those that must be over before. A call that nobody waits for any more is on record, like those that had begun."""
        try:
            for earlier in step.after:
                await self._over[earlier].wait()
        except asyncio.CancelledError:
            await self._calls.record_abandoned(step.call.request)
            raise

    async def _call(self, place: int, step: Step) -> None:
        self._under_way.add(place)
        try:
            self._note(place, await self._calls.execute(step.call.request), None)
        except MeshError as error:
            self._note(place, None, error)
            if step.on_failure is SiblingFailure.CANCEL_SIBLINGS:
                self._stop_siblings(place, error)
        finally:
            self._under_way.discard(place)

    def _withdrawn(self, step: Step) -> MeshError | None:
        return errors.authority_revoked() if self._revoked(step.call.request.caller) else None

    def _dependency_failed(self, step: Step) -> MeshError | None:
        for needed in step.call.depends_on:
            failure = self.outcomes[needed].error
            if failure is not None:
                return errors.sibling_failed(needed, failure)
        return None

    def _stop_siblings(self, place: int, failure: MeshError) -> None:
        """Stop whatever has not ended and is not being stopped already."""
        for other, step in enumerate(self._steps):
            if other in self.outcomes or other in self._stopped:
                continue
            stopped = errors.sibling_failed(place, failure)
            if other not in self._under_way or self._calls.stop(step.call.request, stopped):
                self._stopped[other] = stopped

    def _note(self, place: int, result: Result | None, error: MeshError | None) -> None:
        result_id = new_id() if result is None else result.result_id
        self.outcomes[place] = GroupOutcome(result, error, result_id, self._clock.now(), self._steps[place].tool)
