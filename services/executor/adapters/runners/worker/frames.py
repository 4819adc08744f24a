"""Frames between the executor and a worker: the length of a JSON text in four bytes, then the text.

What a worker sends is untrusted. No more than the limit is ever held of it, and it is read as strictly as any other JSON.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from libs.common.errors import MeshError
from libs.common.json.jsonio import MAX_DEPTH, dump, parse

# A value costs far more than the byte that starts it: what is small on the wire must not become large in memory.
MAX_VALUES = 500_000
# A text, whole; one that breaks off takes the rest.
_TEXT = re.compile(rb'(?s)"[^"\\]*+(?:\\.[^"\\]*+)*+"?+')
_HEAD = 4
# A result is nested inside the frame that brings it.
_FRAME_DEPTH = MAX_DEPTH + 2


class FrameError(Exception):
    """Something else than a frame came, or one that is too large."""

    def __init__(self, size: int = 0) -> None:
        super().__init__()
        self.size = size
        """How large it would be, where that is what is wrong with it."""


def framed(value: Any) -> bytes:
    """Return a value as a frame."""
    body = dump(value)
    return len(body).to_bytes(_HEAD, "big") + body


async def receive(stream: asyncio.StreamReader, limit: int) -> dict[str, Any]:
    """Return what the next frame holds. Raises FrameError, and IncompleteReadError when there is no further frame."""
    size = int.from_bytes(await stream.readexactly(_HEAD), "big")
    if size > limit:
        raise FrameError(size)
    value = read_json(await stream.readexactly(size), limit)
    if not isinstance(value, dict):
        raise FrameError
    return value


def read_json(payload: bytes, limit: int) -> Any:
    """Return what a confined process wrote. Raises FrameError for what is no JSON of the mesh, or has too many parts."""
    if _beginnings(payload) > MAX_VALUES and _beginnings(_TEXT.sub(b"", payload, MAX_VALUES)) > MAX_VALUES:
        # Not even without what stands in texts; of so many texts as there may be values at most, for each takes its time.
        raise FrameError(len(payload))
    try:
        return parse(payload, max_bytes=limit, max_depth=_FRAME_DEPTH)
    except MeshError as error:
        raise FrameError from error


def _beginnings(payload: bytes) -> int:
    """Return how many values begin in a payload, or in its texts seem to."""
    return payload.count(b",") + payload.count(b"[") + payload.count(b"{")
