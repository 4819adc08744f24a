"""Stores the expiry of overdue tickets."""

from __future__ import annotations

from libs.common.runtime.clock import Clock
from services.approval.domain.ports import Tickets

BATCH = 500


async def expire_tickets(tickets: Tickets, clock: Clock) -> int:
    """Expire all overdue tickets and return their number. Safe in any number of replicas."""
    total = 0
    while True:
        expired = await tickets.expire(clock.now(), BATCH)
        total += expired
        if expired < BATCH:
            return total
