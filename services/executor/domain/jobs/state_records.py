"""Puts the changes of a job's state on record that neither its decision nor its outcome shows."""

from __future__ import annotations

from services.executor.domain.audit_records import transition_record
from services.executor.domain.deadlines import time_left
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Event
from services.executor.domain.ports import AuditTrail
from services.executor.domain.states import State


class StateRecords:
    """Records states of jobs. What happens before a run is durable before it."""

    def __init__(self, audit: AuditTrail, wait_seconds: float) -> None:
        self._audit, self._wait_seconds = audit, wait_seconds

    def queued(self, invocation: Invocation) -> None:
        """Record that a job is accepted. Its decision is durable by now."""
        self._audit.leave(transition_record(invocation, Event.QUEUED, invocation.history.previous, State.QUEUED))

    async def started(self, invocation: Invocation) -> None:
        """Record that the tool starts. Raises AUDIT_UNAVAILABLE or AUDIT_BACKPRESSURE; it must not run then."""
        await self._append(invocation, Event.STARTED, invocation.state, State.RUNNING)

    async def taken_over(self, invocation: Invocation) -> None:
        """Record that this replica continues what another one ran. Raises like `started`."""
        await self._append(invocation, Event.YIELDED, State.RUNNING, State.YIELDED)

    def entered(self, invocation: Invocation) -> None:
        """Record the state that a running invocation entered. A log that does not answer has the record later."""
        record = transition_record(invocation, Event.PROGRESS, invocation.history.previous, invocation.state)
        self._audit.leave(record)

    async def _append(self, invocation: Invocation, event: Event, previous: State, state: State) -> None:
        within = time_left(invocation.deadline.run_until, invocation.clock, self._wait_seconds)
        await self._audit.append(transition_record(invocation, event, previous, state), within=within)
