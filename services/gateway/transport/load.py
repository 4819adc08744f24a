"""How much is under way, and whether more is welcome."""

from __future__ import annotations

import asyncio

from libs.common.errors import MeshError, Reason
from services.gateway.transport.asgi_types import Headers


class Load:
    """Counts requests: `with load` holds a place for one. Beyond the limit a new one is refused before its body is read, so memory
    stays bounded."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.serving = False
        """True from the first moment that calls are welcome to the moment that the process begins to end."""

    def __enter__(self) -> None:
        """Hold a place while a request is under way; raises OVERLOADED when there is none."""
        if self._under_way >= self._limit:
            raise MeshError(Reason.OVERLOADED, retry_after=0.1)
        self._under_way += 1
        self._idle.clear()

    def __exit__(self, *failure: object) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._idle.set()

    def farewell(self) -> Headers:
        """Return what every answer says once the process is about to end: the client should take its next request elsewhere."""
        return [] if self.serving else [(b"connection", b"close")]

    async def drained(self, seconds: float) -> None:
        """Return when nothing is under way, or when the time is over."""
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return
