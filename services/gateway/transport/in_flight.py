"""Counts and limits the requests in flight, and knows whether the process accepts more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from libs.common.errors import MeshError, Reason
from services.gateway.transport.asgi_types import Headers


class InFlightRequests:
    """Counts requests; `with in_flight` holds a slot for one.

    A request beyond the limit is refused before its body is read, so memory stays bounded.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.serving = False
        """True from the moment the process accepts calls until it begins to drain."""
        self._on_drain: list[Callable[[], None]] = []

    def __enter__(self) -> None:
        """Take a slot. Raises OVERLOADED when there is none."""
        if self._count >= self._limit:
            raise MeshError(Reason.OVERLOADED, retry_after=0.1)
        self._count += 1
        self._idle.clear()

    def __exit__(self, *failure: object) -> None:
        self._count -= 1
        if not self._count:
            self._idle.set()

    def on_drain(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the process begins to drain, to end what would last beyond it."""
        self._on_drain.append(callback)

    def begin_drain(self) -> None:
        """Accept no more than what clients send before they notice."""
        self.serving = False
        for callback in self._on_drain:
            callback()

    def close_headers(self) -> Headers:
        """Return `connection: close` while the process drains, so that the client sends its next request elsewhere."""
        return [] if self.serving else [(b"connection", b"close")]

    async def wait_idle(self, seconds: float) -> None:
        """Return when no request is in flight, or after so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return
