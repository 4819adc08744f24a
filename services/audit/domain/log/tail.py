"""The end of the log as this process knows it, for those who wait for it to move."""

from __future__ import annotations

import asyncio

from services.audit.domain.log.append_buffer import Recent
from services.audit.domain.model import Stored


class Tail:
    """Wakes followers when this process has committed, and remembers what. Commits of other replicas are not seen here."""

    def __init__(self) -> None:
        self.recent = Recent()
        self._size = 0
        self._waiting: dict[asyncio.Future[None], int] = {}
        """Those who wait, and for which size: a commit that does not reach it leaves them asleep."""

    def reached(self, size: int, stored: Stored | None = None) -> None:
        """Say how large the log is now, and what this process stored to make it so."""
        if stored is not None:
            self.recent.appended(stored)
        self._size = max(self._size, size)
        for waiting, wanted in self._waiting.items():
            if self._size > wanted:
                _wake(waiting)

    async def beyond(self, size: int, timeout: float) -> None:
        """Return when the log is known to be larger than `size`, or when the time is up."""
        if self._size > size:
            return
        loop = asyncio.get_running_loop()
        waiting = loop.create_future()
        self._waiting[waiting] = size
        timer = loop.call_later(timeout, _wake, waiting)
        try:
            await waiting
        finally:
            timer.cancel()
            del self._waiting[waiting]


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
