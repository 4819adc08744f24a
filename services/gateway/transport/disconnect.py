"""Work for as long as somebody waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from services.gateway.transport.asgi_types import DisconnectedError

T = TypeVar("T")


class Presence:
    """Whether the client of a connection is still there. The server puts it into the state of each request: a task that waits
    for the client to leave would cost a short call more than all that it does itself."""

    __slots__ = ("_gone", "_leave")

    def __init__(self) -> None:
        self._gone = False
        self._leave: Callable[[], None] | None = None

    def end(self) -> None:
        """Say that the client is gone."""
        self._gone = True
        if self._leave is not None:
            self._leave()

    def if_gone(self, leave: Callable[[], None] | None) -> None:
        """Call this once when the client goes away, at once if it is gone already; None takes it back. A connection serves one
        request at a time."""
        self._leave = leave
        if self._gone and leave is not None:
            leave()


async def while_connected(presence: Presence, work: Awaitable[T]) -> T:
    """Do the work unless the client goes away first: then the work is cancelled, down to the last hop."""
    serving = asyncio.current_task()
    assert serving is not None
    gone = False

    def leave() -> None:
        nonlocal gone
        gone = True
        serving.cancel()

    presence.if_gone(leave)
    try:
        return await work
    except asyncio.CancelledError:
        if gone:
            serving.uncancel()
            raise DisconnectedError from None
        raise
    finally:
        presence.if_gone(None)
