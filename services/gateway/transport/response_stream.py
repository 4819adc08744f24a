"""The response of one request: a single JSON document, or a stream of events once there is something to say before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from libs.common.json.jsonio import dump
from services.gateway.transport.asgi_types import DisconnectedError, Header, Send

# A client that takes nothing for so long has gone: what it does not read would be kept for it.
STALLED_SECONDS = 30.0
_EVENTS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache, no-transform")]


class ResponseStream:
    """Sends server-sent events. The response begins with the first one, so that a failure before it has its status."""

    def __init__(self, send: Send, headers: Callable[[], list[Header]]) -> None:
        """`headers` are those of the response, asked for when it begins."""
        self._send, self._headers = send, headers
        self.opened = False

    async def send(self, message: dict[str, Any], event_id: str = "") -> None:
        """Send a message. Raises DisconnectedError if the client stopped reading."""
        await self._write(event(dump(message), event_id))

    async def prime(self, event_id: str) -> None:
        """Send an id without a message: a client that is cut off from now on can come back."""
        await self._write(event(b"", event_id))

    async def ping(self) -> None:
        """Send a comment where the stream is open: proxies close silent ones."""
        if self.opened:
            await self._write(b": ping\n\n")

    async def open(self) -> None:
        """Begin the response, if it has not begun."""
        if not self.opened:
            await self._write(b": open\n\n")

    async def finish(self, body: bytes, event_id: str = "") -> None:
        """Send the response, and end the stream."""
        await self._write(event(body, event_id), more=False)

    async def _write(self, data: bytes, *, more: bool = True) -> None:
        try:
            async with asyncio.timeout(STALLED_SECONDS):
                if not self.opened:
                    self.opened = True
                    start = {"type": "http.response.start", "status": 200, "headers": [*_EVENTS, *self._headers()]}
                    await self._send(start)
                await self._send({"type": "http.response.body", "body": data, "more_body": more})
        except TimeoutError:
            raise DisconnectedError from None


def event(data: bytes, event_id: str = "") -> bytes:
    """Return one server-sent event."""
    named = f"id: {event_id}\n".encode() if event_id else b""
    return b"".join((b"event: message\n", named, b"data: ", data, b"\n\n"))
