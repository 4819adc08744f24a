"""Work for as long as somebody waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from services.gateway.transport.asgi import DisconnectedError, Receive

T = TypeVar("T")


async def while_connected(receive: Receive, work: Callable[[], Awaitable[T]]) -> T:
    """Do the work unless the client goes away first: then the work is cancelled, down to the last hop."""
    serving = asyncio.current_task()
    assert serving is not None
    gone = False

    async def watch() -> None:
        nonlocal gone
        while (await receive())["type"] != "http.disconnect":
            continue
        gone = True
        serving.cancel()

    watcher = asyncio.create_task(watch())
    try:
        return await work()
    except asyncio.CancelledError:
        if gone:
            serving.uncancel()
            raise DisconnectedError from None
        raise
    finally:
        watcher.cancel()
