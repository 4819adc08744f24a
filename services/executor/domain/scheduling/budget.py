"""Spending of limited calls: reserved before they run, settled when they end, however they end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import Clock
from libs.common.runtime.retry import is_transient, retry_until
from services.executor.domain import errors
from services.executor.domain.deadlines import Limit
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Decision, Reservation
from services.executor.domain.ports import Observer, Spending

# Beyond the end of the run: how long the owner of a reservation may take to settle it.
LEASE_MARGIN = 5.0
# How long a call waits for the count at most; without it nothing limited runs.
PATIENCE = 1.0
# A store that comes back is not asked once more by everybody whom it could not serve.
MOST_SETTLING = 1000
_REFUSED = frozenset({Reason.RATE_LIMITED, Reason.BUDGET_EXHAUSTED})


class BudgetReservations:
    """Keeps the books of limited calls. A call without limits never comes here."""

    def __init__(self, spending: Spending, clock: Clock, observer: Observer) -> None:
        self._spending, self._clock, self._observer = spending, clock, observer
        self._settling: set[asyncio.Task[None]] = set()

    async def reserve(self, invocation: Invocation, decision: Decision, limit: Limit) -> Limit:
        """Count the call and return how long it may run: at most as long as its budgets last. Raises RATE_LIMITED,
        BUDGET_EXHAUSTED or SERVICE_UNAVAILABLE; then it may not run."""
        reservation = Reservation(
            invocation_id=invocation.invocation_id,
            limits=decision.limits,
            # What is only previewed has no price, and is no use of its token: the call that follows is.
            cost_micros=0 if invocation.preview else decision.cost_micros,
            seconds=limit.seconds,
            lease=limit.seconds + LEASE_MARGIN,
            use=not invocation.preview,
        )
        seconds = await self._reserved(invocation, reservation)
        if seconds >= limit.seconds:
            return limit
        # A whole budget is gone when it is over, so the token is to blame and not the tool.
        return Limit(seconds, lambda: errors.budget_exhausted(_shortest(decision), "running"))

    async def count(self, invocation: Invocation, decision: Decision) -> None:
        """Count a call that nothing has to run for: a call like any other, of no time and without a price. Raises as `reserve` does;
        then it may not be answered."""
        reservation = Reservation(invocation.invocation_id, decision.limits, 0, 0.0, LEASE_MARGIN)
        await self._reserved(invocation, reservation)
        self._begin_to_settle(invocation, 0.0)

    def settle(self, invocation: Invocation) -> None:
        """Begin to give back what the call did not take. Goes on if the caller leaves, and again if the store is away."""
        ran = None if invocation.run_started is None else self._clock.monotonic() - invocation.run_started
        self._begin_to_settle(invocation, ran)

    async def _reserved(self, invocation: Invocation, reservation: Reservation) -> float:
        # From here on, as far as this process knows: if the answer is lost, it is given back.
        invocation.reservation = reservation
        left = invocation.deadline.run_until - self._clock.monotonic()
        try:
            async with asyncio.timeout(max(min(left, PATIENCE), 0.001)):
                return await self._spending.reserve(reservation)
        except TimeoutError:
            raise errors.spending_uncounted() from None
        except MeshError as error:
            if error.reason in _REFUSED:
                # Nothing was taken, so nothing is to be given back.
                invocation.reservation = None
            raise

    def _begin_to_settle(self, invocation: Invocation, ran: float | None) -> None:
        reservation, invocation.reservation = invocation.reservation, None
        if reservation is None:
            return
        invocation.settling = self._begun(
            self._settle(partial(self._spending.settle, reservation, ran=ran), reservation)
        )

    async def wait_settled(self, invocation: Invocation) -> None:
        """Wait until it is given back, so that the caller's next call finds it; not beyond the time to answer."""
        if invocation.settling is not None:
            left = invocation.deadline.answer_by - self._clock.monotonic()
            await asyncio.wait({invocation.settling}, timeout=max(min(left, PATIENCE), 0.0))

    async def _settle(self, step: Callable[[], Awaitable[None]], reservation: Reservation) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                await step()
        except Exception as cause:
            self._observer.unexpected(cause)
            if is_transient(cause) and len(self._settling) < MOST_SETTLING:
                # Nobody waits for it any more. What is under way would end with its lease; running time that was not used would be gone for good.
                self._begun(retry_until(step, attempt_timeout=PATIENCE, time_budget=reservation.lease))

    def _begun(self, step: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(step)
        self._settling.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._settling.discard(task)
        if not task.cancelled() and isinstance(cause := task.exception(), Exception):
            self._observer.unexpected(cause)


def _shortest(decision: Decision) -> str:
    """The token with the least running time in all, for the message."""
    timed = [limit for limit in decision.limits if limit.max_running is not None]
    return min(timed, key=lambda limit: limit.max_running or 0.0).source if timed else ""
