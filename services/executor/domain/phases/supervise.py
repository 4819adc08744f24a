"""Supervises invocations under way: counts them, cancels them, and records every failure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import Clock
from services.executor.domain import errors
from services.executor.domain.hooks.invocation_hooks import InvocationHooks
from services.executor.domain.idempotency import errors as key_errors
from services.executor.domain.idempotency.effect import describe_effect
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Caller, Request
from services.executor.domain.phases.finish import Completion
from services.executor.domain.ports import Observer
from services.executor.domain.results.repeated_values import hide_in_error
from services.executor.domain.scheduling.budget import BudgetReservations
from services.executor.domain.scheduling.shielded import ShieldedSteps
from services.executor.domain.tool import UncertainOutcome, VersionIdentity

T = TypeVar("T")
# The failures of calls whose time is, or may be, over.
_LATE = frozenset({Reason.DEADLINE_EXCEEDED, Reason.SANDBOX_NOT_READY})
_FOREVER = float("inf")
# How long a late call still waits for its record.
_LAST_MOMENT = 0.001


@dataclass(slots=True)
class InFlight:
    """The number of invocations under way in this process."""

    count: int = 0


class ActiveInvocations:
    """Maps each invocation under way to its task, so that it can be canceled with an error of its own."""

    def __init__(self) -> None:
        self._tasks: dict[Invocation, asyncio.Task[Any] | None] = {}
        self._canceled: dict[Invocation, MeshError] = {}

    def add(self, invocation: Invocation) -> None:
        """Register an invocation of the current task."""
        self._tasks[invocation] = asyncio.current_task()

    def remove(self, invocation: Invocation) -> None:
        """Forget an invocation. It can no longer be canceled. Idempotent."""
        self._tasks.pop(invocation, None)
        if self._canceled:
            self._canceled.pop(invocation, None)

    def cancel_revoked(self, revoked: Callable[[Caller], bool]) -> int:
        """Cancel the invocations whose token was revoked, with TOKEN_REVOKED. Return how many."""
        affected = [each for each in self._tasks if self._cancelable(each) and revoked(each.request.caller)]
        for invocation in affected:
            self._cancel(invocation, errors.authority_revoked())
        return len(affected)

    def cancel_withdrawn(self, error: errors.ToolUnavailableError) -> int:
        """Cancel the invocations of a version that was quarantined or removed. Return how many.

        One that commits its effects is left alone, and one that violated its manifest: it ends with that error.
        """
        affected = [each for each in self._tasks if self._cancelable(each) and _runs(each, error.version)]
        for invocation in affected:
            # A copy for each, because each adds its own metadata.
            self._cancel(invocation, errors.ToolUnavailableError(error.reason, error.version, error.metadata))
        return len(affected)

    def cancel_request(self, request: Request, error: MeshError) -> bool:
        """Cancel the invocation of this very request with the error. Return whether it was canceled.

        One that commits its effects is left alone: the error would not be its outcome.
        """
        for invocation in self._tasks:
            if invocation.request is request and self._cancelable(invocation) and not invocation.committing:
                self._cancel(invocation, error)
                return True
        return False

    def cancel_lost_claim(self, run_id: str) -> None:
        """Cancel an invocation whose claim may belong to another call by now.

        One whose tool must not be repeated continues: half of its effect helps no caller.
        """
        for invocation in self._tasks:
            if invocation.run_id == run_id and self._cancelable(invocation):
                tool = invocation.tool
                if tool is not None and (tool.uncertain is not UncertainOutcome.FAIL or tool.checkpoint is not None):
                    self._cancel(invocation, key_errors.claim_lost())
                return

    def cancellation_error(self, invocation: Invocation) -> MeshError | None:
        """Return why an invocation was canceled here, unless its caller left too. Ends the task's cancellation."""
        error = self._canceled.get(invocation)
        if error is None:
            return None
        task = self._tasks[invocation]
        return error if task is None or task.uncancel() == 0 else None

    def _cancelable(self, invocation: Invocation) -> bool:
        return not invocation.closed and invocation not in self._canceled

    def _cancel(self, invocation: Invocation, error: MeshError) -> None:
        self._canceled[invocation] = error
        task = self._tasks[invocation]
        if task is not None:
            task.cancel()


def _runs(invocation: Invocation, version: VersionIdentity) -> bool:
    tool = invocation.tool
    if tool is None or invocation.committing or invocation.violations:
        return False
    return (tool.name, tool.digest) == (version.name, version.digest)


class Supervisor:
    """Runs the phases of invocations, calls and previews alike, and records how they fail."""

    def __init__(
        self,
        *,
        completion: Completion,
        steps: ShieldedSteps,
        budget: BudgetReservations,
        hooks: InvocationHooks,
        observer: Observer,
        clock: Clock,
        in_flight: InFlight,
    ) -> None:
        self._completion, self._steps, self._budget, self._hooks = completion, steps, budget, hooks
        self._observer, self._clock, self._in_flight = observer, clock, in_flight
        self.active = ActiveInvocations()

    async def run(self, invocation: Invocation, phases: Callable[[Invocation], Awaitable[T]]) -> T:
        """Return what the phases return, or raise MeshError with the invocation's id."""
        self._in_flight.count += 1
        self.active.add(invocation)
        try:
            return await phases(invocation)
        except MeshError as error:
            self.active.remove(invocation)
            hide_in_error(error, invocation.scanner)
            if error.reason is Reason.DEADLINE_EXCEEDED:
                raise await self._answer_late(invocation, error, self._record_failure(invocation, error)) from None
            raise await self._steps.run_shielded(self._record_failure(invocation, error)) from None
        except asyncio.CancelledError:
            if (canceled := await self._record_canceled(invocation)) is not None:
                raise canceled from None
            raise
        except Exception as cause:
            self.active.remove(invocation)
            self._observer.unexpected(cause, invocation.scanner)
            raise await self._steps.run_shielded(self._record_failure(invocation, errors.unexpected())) from cause
        finally:
            self.active.remove(invocation)
            # Its code need not wait for the garbage collection of the invocation.
            invocation.code = ""
            self._in_flight.count -= 1
            self._observer.ended(invocation, invocation.elapsed())
            if invocation.reservation is not None:
                self._budget.settle(invocation)
            if invocation.settling is not None:
                await self._budget.wait_settled(invocation)

    async def record_not_started(self, invocation: Invocation, error: MeshError) -> MeshError:
        """Record an invocation that is not started, and return the error of its caller."""
        try:
            return await self._steps.run_shielded(
                self._completion.fail(invocation, error, invocation.deadline.answer_by)
            )
        finally:
            self._observer.ended(invocation, invocation.elapsed())

    async def record_abandoned(self, invocation: Invocation) -> None:
        """Record an invocation that is not started because its caller left."""
        try:
            await self._record_canceled(invocation)
        finally:
            self._observer.ended(invocation, invocation.elapsed())

    async def _record_failure(self, invocation: Invocation, error: MeshError) -> MeshError:
        if self._hooks.active and not invocation.closed:
            await self._hooks.after_failure(invocation, error)
        if error.reason in _LATE:
            # The server answers the caller in time, whatever the log does; the record has as long as it takes.
            return await self._completion.fail_unattended(invocation, error)
        return await self._completion.fail(invocation, error, invocation.deadline.answer_by)

    async def _record_canceled(self, invocation: Invocation) -> MeshError | None:
        """Record that the caller left, that its time is over, or that the invocation was canceled here.

        The error of the latter two is returned, because the caller may still wait.
        """
        late = self._clock.monotonic() >= invocation.deadline.run_until
        canceled = self.active.cancellation_error(invocation)
        self.active.remove(invocation)
        error = canceled or (errors.deadline_exceeded() if late else errors.canceled())
        recording = self._completion.fail_unattended(invocation, error)
        if late and canceled is None:
            return await self._answer_late(invocation, error, recording)
        recorded = await self._steps.run_shielded(recording)
        return recorded if canceled is not None else None

    async def _answer_late(
        self, invocation: Invocation, error: MeshError, recording: Coroutine[Any, Any, MeshError]
    ) -> MeshError:
        """Return the error of a call whose time is over, in time to be answered. The record may still be under way."""
        error.invocation_id = invocation.invocation_id
        if not invocation.closed:
            describe_effect(invocation, error)
        task = self._steps.start(recording)
        left = invocation.deadline.answer_by - self._clock.monotonic()
        try:
            await asyncio.wait([task], timeout=None if left == _FOREVER else max(left, _LAST_MOMENT))
        except asyncio.CancelledError:
            if self._clock.monotonic() < invocation.deadline.run_until:
                raise
            # The server ends the call at its deadline. The error says more than the cancellation.
        return task.result() if task.done() else error
