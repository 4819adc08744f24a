"""The frame format of a worker's pipes: four bytes of length, then a JSON text.

The first bit of the length is set in frames that precede the answer of a call. Such a frame may name the size of a
payload, which follows it: a JSON text that the executor need not parse.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_EARLY = 1 << 31


def receive(descriptor: int) -> Any:
    """Return the value of the next frame; None at the end of the stream."""
    head = _read_exactly(descriptor, 4)
    if head is None:
        return None
    body = _read_exactly(descriptor, int.from_bytes(head, "big"))
    return None if body is None else json.loads(body)


def encode(value: Any) -> bytes:
    """Return a value as JSON. Raises ValueError, TypeError or RecursionError if it has no JSON form."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()


def frame(body: bytes) -> bytes:
    """Return the frame of an answer, or of a message outside a call."""
    return len(body).to_bytes(4, "big") + body


def early_frame(body: bytes, payload: bytes = b"") -> bytes:
    """Return a frame that precedes the answer, and its payload."""
    return (len(body) | _EARLY).to_bytes(4, "big") + body + payload


def write(descriptor: int, data: bytes) -> None:
    """Write all of the data."""
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[os.write(descriptor, remaining) :]


def _read_exactly(descriptor: int, size: int) -> bytes | None:
    parts = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
