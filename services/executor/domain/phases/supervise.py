"""Serving one invocation: it is counted while it is under way, it can be taken back, and whatever goes wrong is put on record."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import Clock
from services.executor.domain import errors
from services.executor.domain.hooks.invocation_hooks import Hooking
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Caller, Request
from services.executor.domain.phases.finish import Closing
from services.executor.domain.ports import Observer
from services.executor.domain.running import Running
from services.executor.domain.scheduling.budget import Accounts
from services.executor.domain.tool import UncertainOutcome

T = TypeVar("T")


@dataclass(slots=True)
class InFlight:
    """How many invocations are under way in this process."""

    count: int = 0


class Serving:
    """Sees invocations through to their end, calls and previews alike."""

    def __init__(
        self,
        closing: Closing,
        accounts: Accounts,
        hooking: Hooking,
        observer: Observer,
        clock: Clock,
        in_flight: InFlight,
    ) -> None:
        self._closing, self._accounts, self._hooking = closing, accounts, hooking
        self._observer, self._clock = observer, clock
        self._in_flight, self._running = in_flight, Running()

    async def __call__(self, invocation: Invocation, phases: Callable[[Invocation], Awaitable[T]]) -> T:
        """Return what the phases answer, or raise MeshError with the invocation's id."""
        closing = self._closing
        self._in_flight.count += 1
        self._running.begin(invocation)
        try:
            return await phases(invocation)
        except MeshError as error:
            self._running.end(invocation)
            raise await closing.to_the_end(self._failed(invocation, error)) from None
        except asyncio.CancelledError:
            if (late := await self._interrupted(invocation)) is not None:
                raise late from None
            raise
        except Exception as cause:
            self._running.end(invocation)
            self._observer.unforeseen(cause)
            raise await closing.to_the_end(self._failed(invocation, errors.unforeseen())) from cause
        finally:
            self._running.end(invocation)
            self._in_flight.count -= 1
            self._observer.ended(invocation, invocation.elapsed())
            self._accounts.settle(invocation)
            await self._accounts.settled(invocation)

    def stop(self, request: Request, error: MeshError) -> bool:
        """End the invocation of this very request if it is under way: on record, and answered with the error. Say whether it was."""
        return self._running.stop(request, error)

    def overtaken(self, invocation_id: str) -> None:
        """End an invocation whose key may be somebody else's by now. One that nobody may repeat goes on: stopping it half-way helps nobody."""
        self._running.stop_invocation(invocation_id, _unless_it_must_not_be_repeated)

    async def never_began(self, invocation: Invocation, error: MeshError) -> MeshError:
        """Put an invocation on record that was not begun, and return what its caller gets."""
        try:
            return await self._closing.to_the_end(
                self._closing.failed(invocation, error, invocation.deadline.answer_by)
            )
        finally:
            self._observer.ended(invocation, invocation.elapsed())

    async def given_up(self, invocation: Invocation) -> None:
        """Put an invocation on record that nobody waits for any more, and that was not begun."""
        try:
            await self._interrupted(invocation)
        finally:
            self._observer.ended(invocation, invocation.elapsed())

    def withdraw(self, revoked: Callable[[Caller], bool]) -> int:
        """End what runs on authority that was taken back: on record, and answered with TOKEN_REVOKED. Return how many."""
        return self._running.withdraw(revoked)

    async def _failed(self, invocation: Invocation, error: MeshError) -> MeshError:
        if self._hooking.active and not invocation.closed:
            await self._hooking.after_failure(invocation, error)
        if error.reason is Reason.DEADLINE_EXCEEDED:
            # Whoever serves the call answers this in time, whatever the log does; the record has as long as it takes.
            return await self._closing.interrupted(invocation, error)
        return await self._closing.failed(invocation, error, invocation.deadline.answer_by)

    async def _interrupted(self, invocation: Invocation) -> MeshError | None:
        """Record that the caller left, that its time is over, or that somebody stopped it. The latter two are returned, for someone
        may still listen."""
        late = self._clock.monotonic() >= invocation.deadline.run_until
        stopped = self._running.stopped(invocation)
        self._running.end(invocation)
        error = stopped or (errors.deadline_exceeded() if late else errors.canceled())
        failure = await self._closing.to_the_end(self._closing.interrupted(invocation, error))
        return failure if late or stopped is not None else None


def _unless_it_must_not_be_repeated(invocation: Invocation) -> MeshError | None:
    rule = invocation.tool.uncertain if invocation.tool is not None else UncertainOutcome.FAIL
    return None if rule is UncertainOutcome.FAIL else errors.claim_lost()
