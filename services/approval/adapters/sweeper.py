"""Periodically stores the expiry of tickets."""

from __future__ import annotations

from libs.common.runtime.clock import Clock
from libs.common.runtime.tasks import PeriodicTask
from libs.common.telemetry.log import Log
from services.approval.domain.expire_tickets import expire_tickets
from services.approval.domain.ports import Tickets

INTERVAL_SECONDS = 2.0


def expiry_sweeper(tickets: Tickets, clock: Clock, log: Log, *, interval: float = INTERVAL_SECONDS) -> PeriodicTask:
    """Return the task that expires tickets. A failed sweep is logged and repeated; reads do not depend on it, because
    an overdue ticket already reads as denied."""

    async def sweep() -> None:
        expired = await expire_tickets(tickets, clock)
        if expired:
            log.info("tickets expired", count=expired)

    return PeriodicTask("ticket-expiry", sweep, log, interval=interval)
