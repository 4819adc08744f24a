"""Lets jobs go on whose ticket is decided.

A job that waits for a person is held by no replica, so it takes no slot and a restart changes nothing. Only its ticket
is looked at. Every phase is run again once that is decided, and the approval is redeemed just before the run.
"""

from __future__ import annotations

import asyncio

from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import Clock
from libs.common.runtime.retry import retry_until
from services.executor.domain.approvals.ticket import Approvals
from services.executor.domain.jobs.job import AwaitingJob, ClaimedJob
from services.executor.domain.jobs.ports import AwaitingJobs, CallerSessions, JobSignals
from services.executor.domain.ports import Observer

LOOK_SECONDS = 0.5
_BATCH = 32
_WAIT_SECONDS = 5.0
# How long the cancellation of a ticket is offered to a service that does not answer. The ticket ends by time then.
_WITHDRAW_SECONDS = 10.0
_CLOSED = frozenset({Reason.TICKET_CLOSED, Reason.NOT_FOUND})


class AwaitApprovals:
    """Looks at the tickets of jobs that wait, and cancels the tickets of jobs that end without them."""

    def __init__(
        self,
        jobs: AwaitingJobs,
        approvals: Approvals,
        sessions: CallerSessions,
        signals: JobSignals,
        readers: JobSignals,
        observer: Observer,
        clock: Clock,
    ) -> None:
        self._jobs, self._approvals, self._sessions = jobs, approvals, sessions
        self._signals, self._readers, self._observer, self._clock = signals, readers, observer, clock

    async def look(self) -> None:
        """Look at all tickets that are due, and let those jobs go on that need not wait any more."""
        while True:
            due = await self._jobs.due(_BATCH)
            # Each in a task of its own: a token belongs to the task that it is verified in.
            await asyncio.gather(*(self._look_at(job) for job in due))
            if len(due) < _BATCH:
                return

    async def wait(self, job: ClaimedJob, ticket: str) -> None:
        """Let a job wait whose approval is required since it was accepted."""
        await self._jobs.wait(job, ticket)
        self._readers.wake()

    async def withdraw(self, ticket: str) -> None:
        """Cancel the ticket of a job that ends without using it."""

        async def cancel() -> None:
            try:
                await self._approvals.cancel(ticket, within=_WAIT_SECONDS)
            except MeshError as error:
                if error.reason not in _CLOSED:
                    raise

        try:
            await retry_until(cancel, attempt_timeout=_WAIT_SECONDS, time_budget=_WITHDRAW_SECONDS)
        except MeshError as cause:
            self._observer.unexpected(cause)

    async def _look_at(self, job: AwaitingJob) -> None:
        try:
            state = await self._state_of(job)
        except MeshError as error:
            if error.row.retryable:
                return
            # The phases find the same, and end the job with it.
            state = ""
        if state == "pending":
            return
        await self._jobs.release(job, approved=state == "approved")
        self._signals.wake()
        self._readers.wake()

    async def _state_of(self, job: AwaitingJob) -> str:
        """Return the state of its ticket; empty for a job that cannot run any more. Raises what its token raises."""
        if job.request is None or job.seconds_left <= 0:
            return ""
        await self._sessions.resume(job.token, job.request, self._clock.monotonic() + job.seconds_left)
        return (await self._approvals.get(job.ticket, within=_WAIT_SECONDS)).state
