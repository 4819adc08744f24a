"""Stores what time changed: escalations, denials and expired approvals."""

from __future__ import annotations

from services.approval.domain.ports import Tickets

BATCH = 200


async def advance_tickets(tickets: Tickets) -> int:
    """Advance all due tickets and return their number. Safe in any number of replicas."""
    total = 0
    while True:
        advanced = await tickets.advance(BATCH)
        total += advanced
        if advanced < BATCH:
            return total
