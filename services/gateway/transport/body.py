"""Reads a request body within a size and a time limit."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping

from libs.common.errors import MeshError, Reason
from services.gateway.transport.asgi_types import DisconnectedError, Receive

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
    try:
        async with asyncio.timeout(min((deadline_ms or math.inf) / 1000, READ_SECONDS)):
            return await _whole(receive, limit)
    except TimeoutError:
        raise MeshError(Reason.DEADLINE_EXCEEDED) from None


async def _whole(receive: Receive, limit: int) -> bytes:
    parts = bytearray()
    while True:
        event = await receive()
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
