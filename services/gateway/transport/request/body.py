"""Reads a request body within a size and a time limit."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any

from libs.common.errors import MeshError, Reason
from services.gateway.transport.asgi_types import DisconnectedError, Event, Receive

# A body that takes longer is not worth its slot.
READ_SECONDS = 30.0


async def read_body(receive: Receive, headers: Mapping[bytes, bytes], limit: int, deadline_ms: int | None) -> bytes:
    """Return the whole body.

    Raises PAYLOAD_TOO_LARGE as soon as the declared or the counted length exceeds the limit, DEADLINE_EXCEEDED when the
    body does not arrive in time, and DisconnectedError when the client leaves.
    """
    declared = headers.get(b"content-length", b"0")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    first = _event_at_hand(receive)
    if first is not None and first["type"] == "http.request" and not first.get("more_body", False):
        # Most bodies: a timer would cost more than reading them.
        body: bytes = first.get("body", b"")
        if len(body) > limit:
            raise _too_large(limit)
        return body
    try:
        async with asyncio.timeout(min((deadline_ms or math.inf) / 1000, READ_SECONDS)):
            return await _whole(receive, limit, first)
    except TimeoutError:
        raise MeshError(Reason.DEADLINE_EXCEEDED) from None


def _event_at_hand(receive: Receive) -> Event | None:
    """Return the next event if the server has it already, else None: then nothing was taken."""
    waiting: Any = receive()
    try:
        waiting.send(None)
    except StopIteration as done:
        event: Event = done.value
        return event
    # It waits, and is asked again with a time limit. Closing it is what a cancellation would do.
    waiting.close()
    return None


async def _whole(receive: Receive, limit: int, first: Event | None) -> bytes:
    parts = bytearray()
    while True:
        event, first = first or await receive(), None
        if event["type"] == "http.disconnect":
            raise DisconnectedError
        part = event.get("body", b"")
        assert isinstance(part, bytes)
        parts += part
        if len(parts) > limit:
            raise _too_large(limit)
        if not event.get("more_body", False):
            return bytes(parts)


def _too_large(limit: int) -> MeshError:
    return MeshError(Reason.PAYLOAD_TOO_LARGE, metadata={"limit_bytes": str(limit)})
