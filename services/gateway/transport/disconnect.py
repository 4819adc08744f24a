"""Cancels work when the client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from services.gateway.transport.asgi_types import DisconnectedError

T = TypeVar("T")


class DisconnectWatcher:
    """Knows whether the client of a connection has left. The server puts it into the state of each request.

    A task per request that waits for the disconnect would cost a short call more than its own work.
    """

    __slots__ = ("_callback", "_gone")

    def __init__(self) -> None:
        self._gone = False
        self._callback: Callable[[], None] | None = None

    def notify(self) -> None:
        """Report that the client has left."""
        self._gone = True
        if self._callback is not None:
            self._callback()

    def on_disconnect(self, callback: Callable[[], None] | None) -> None:
        """Call `callback` once when the client leaves, at once if it has left; None removes it.

        A connection serves one request at a time.
        """
        self._callback = callback
        if self._gone and callback is not None:
            callback()


async def while_connected(watcher: DisconnectWatcher, work: Awaitable[T]) -> T:
    """Await the work. If the client leaves first, cancel it, down to the last hop, and raise DisconnectedError."""
    serving = asyncio.current_task()
    assert serving is not None
    gone = False

    def callback() -> None:
        nonlocal gone
        gone = True
        serving.cancel()

    watcher.on_disconnect(callback)
    try:
        return await work
    except asyncio.CancelledError:
        if gone:
            serving.uncancel()
            raise DisconnectedError from None
        raise
    finally:
        watcher.on_disconnect(None)
