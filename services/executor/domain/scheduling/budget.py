"""Reserves the budget of limited calls before they run, and settles it when they end."""

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

# How long after the end of the run a reservation may be settled.
LEASE_MARGIN = 5.0
# How long a call waits for its reservation; without one, no limited call runs.
PATIENCE = 1.0
# Bounds the retries that a recovering store gets.
MOST_SETTLING = 1000
_REFUSED = frozenset({Reason.RATE_LIMITED, Reason.BUDGET_EXHAUSTED})


class BudgetReservations:
    """Reserves and settles the budgets of limited calls. Calls without limits do not use it."""

    def __init__(self, spending: Spending, clock: Clock, observer: Observer) -> None:
        self._spending, self._clock, self._observer = spending, clock, observer
        self._settling: set[asyncio.Task[None]] = set()

    async def reserve(self, invocation: Invocation, decision: Decision, limit: Limit, *, start: float) -> Limit:
        """Count the call and return its time limit, within its budgets. `start` is the longest start of its sandbox.

        Raises RATE_LIMITED, BUDGET_EXHAUSTED or SERVICE_UNAVAILABLE; the call must not run then.
        """
        reservation = Reservation(
            invocation_id=invocation.invocation_id,
            limits=decision.limits,
            # A preview has no price and does not use up a call of its token; the call that follows does.
            cost_micros=0 if invocation.preview else decision.cost_micros,
            seconds=limit.seconds,
            lease=start + limit.seconds + LEASE_MARGIN,
            use=not invocation.preview,
        )
        seconds = await self._reserved(invocation, reservation)
        if seconds >= limit.seconds:
            return limit
        # The budget of the token ends before the limit of the tool, so the error names the token.
        return Limit(seconds, lambda: errors.budget_exhausted(_shortest(decision), "running"))

    async def count(self, invocation: Invocation, decision: Decision) -> None:
        """Count a call that is answered from the cache, without time and price. Raises like `reserve`."""
        reservation = Reservation(invocation.invocation_id, decision.limits, 0, 0.0, LEASE_MARGIN)
        await self._reserved(invocation, reservation)
        self._begin_to_settle(invocation, 0.0)

    def settle(self, invocation: Invocation) -> None:
        """Start to return the unused part of the reservation. Retried in the background if the store fails."""
        ran = None if invocation.run_started is None else self._clock.monotonic() - invocation.run_started
        self._begin_to_settle(invocation, ran)

    async def _reserved(self, invocation: Invocation, reservation: Reservation) -> float:
        # Set before the store answers: if the answer is lost, the reservation is still settled.
        invocation.reservation = reservation
        left = invocation.deadline.run_until - self._clock.monotonic()
        try:
            async with asyncio.timeout(max(min(left, PATIENCE), 0.001)):
                return await self._spending.reserve(reservation)
        except TimeoutError:
            raise errors.budget_unavailable() from None
        except MeshError as error:
            if error.reason in _REFUSED:
                # Nothing was reserved, so nothing has to be settled.
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
        """Wait until the reservation is settled, so that the next call sees it; at most until the answer is due."""
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
                # Unsettled, the concurrency count ends with its lease, but unused run time would be lost for good.
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
    """Return the token with the shortest total run time, for the message."""
    timed = [limit for limit in decision.limits if limit.max_running is not None]
    return min(timed, key=lambda limit: limit.max_running or 0.0).source if timed else ""
