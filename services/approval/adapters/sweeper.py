"""Periodically stores what time changed in tickets."""

from __future__ import annotations

from libs.common.runtime.tasks import PeriodicTask
from libs.common.telemetry.log import Log
from services.approval.domain.lifecycle.advance_tickets import advance_tickets
from services.approval.domain.ports import Tickets

INTERVAL_SECONDS = 2.0


def ticket_sweeper(tickets: Tickets, log: Log, *, interval: float = INTERVAL_SECONDS) -> PeriodicTask:
    """Return the task that escalates, denies and expires tickets. A failed sweep is logged and repeated; reads do not
    depend on it, because an overdue ticket already reads as denied."""

    async def sweep() -> None:
        advanced = await advance_tickets(tickets)
        if advanced:
            log.info("tickets advanced by time", count=advanced)

    return PeriodicTask("ticket-sweeper", sweep, log, interval=interval)
