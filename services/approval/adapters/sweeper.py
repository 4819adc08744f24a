"""The task that writes down, moment by moment, what time has decided."""

from __future__ import annotations

import asyncio

from libs.common.runtime.clock import Clock
from libs.common.telemetry.log import Log
from services.approval.domain.expire_tickets import expire_tickets
from services.approval.domain.ports import Tickets

INTERVAL_SECONDS = 2.0


class Sweeper:
    """Expires tickets until it is stopped. A database that is away is tried again: reading tickets does not depend on it,
    because a ticket whose time is over reads as denied anyway."""

    def __init__(self, tickets: Tickets, clock: Clock, log: Log, *, interval: float = INTERVAL_SECONDS) -> None:
        self._tickets, self._clock, self._log, self._interval = tickets, clock, log, interval
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin, in the background."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End; a round that is under way is rolled back, and another replica or the next start does it again."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                expired = await expire_tickets(self._tickets, self._clock)
            except Exception as error:
                self._log.error("tickets could not be expired", cause=error)
            else:
                if expired:
                    self._log.info("tickets expired", count=expired)
            await asyncio.sleep(self._interval)
