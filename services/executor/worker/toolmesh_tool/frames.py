"""Frames: the length of a JSON text in four bytes, then the text. Both ends of a worker's pipes speak in them."""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def receive(descriptor: int) -> Any:
    """Return what the next frame holds; None when nobody will send another."""
    head = _exactly(descriptor, 4)
    if head is None:
        return None
    body = _exactly(descriptor, int.from_bytes(head, "big"))
    return None if body is None else json.loads(body)


def encoded(value: Any) -> bytes:
    """Return a value as JSON. Raises ValueError, TypeError or RecursionError for what has no such form."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()


def send(descriptor: int, body: bytes) -> None:
    """Send a frame, whole."""
    left = memoryview(len(body).to_bytes(4, "big") + body)
    while left:
        left = left[os.write(descriptor, left) :]


def _exactly(descriptor: int, size: int) -> bytes | None:
    parts = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
