"""Frames between the executor and a worker: a four-byte length, then a JSON text.

The first bit of the length is set in frames that precede the answer of a call: what the tool prints and reports. They
are small, and may name the size of a payload that follows them.

A worker's output is untrusted. It is bounded while it is read, and parsed as strictly as any other JSON.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from libs.common.errors import MeshError
from libs.common.json.jsonio import MAX_DEPTH, dump, parse, refuse_many_values
from services.executor.domain.scheduling.heavy_work import WorkShare

MAX_VALUES = 500_000
"""The most values of one answer."""
_LENGTH_BYTES = 4
_EARLY = 1 << 31
# A frame that precedes an answer, without its payload.
_EARLY_BYTES = 16 << 10
# The result is nested inside its frame.
_FRAME_DEPTH = MAX_DEPTH + 2


class FrameError(Exception):
    """The input is not a frame, or it is too large."""

    def __init__(self, size: int = 0) -> None:
        super().__init__()
        self.size = size
        """The size of an oversized frame; 0 for other errors."""


def encode_frame(value: Any) -> bytes:
    """Encode a value as a frame."""
    return as_frame(dump(value))


def as_frame(body: bytes) -> bytes:
    """Return JSON as a frame."""
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


async def read_frame(
    stream: asyncio.StreamReader,
    limit: int,
    share: WorkShare | None = None,
    clean: Callable[[bytes], bytes] = bytes,
) -> tuple[bool, dict[str, Any]]:
    """Read the next frame, and return first whether it precedes an answer.

    A large one is parsed beside the event loop, in the share of the caller; without a share the limit must be small.
    `clean` changes the text of an answer before it is parsed.

    Raises FrameError, and IncompleteReadError at the end of the stream.
    """
    head = int.from_bytes(await stream.readexactly(_LENGTH_BYTES), "big")
    is_early, size = bool(head & _EARLY), head & ~_EARLY
    if size > (limit := _EARLY_BYTES if is_early else limit):
        raise FrameError(size)
    read = partial(_read_clean, await stream.readexactly(size), limit, bytes if is_early else clean)
    value = read() if share is None else await share.run_if_large(size, read)
    if not isinstance(value, dict):
        raise FrameError
    return is_early, value


def _read_clean(payload: bytes, limit: int, clean: Callable[[bytes], bytes]) -> Any:
    return read_json(clean(payload), limit)


def read_json(payload: bytes, limit: int) -> Any:
    """Parse the output of a sandboxed process. Raises FrameError if it is not strict JSON or has too many values."""
    try:
        refuse_many_values(payload, MAX_VALUES)
    except MeshError as error:
        raise FrameError(len(payload)) from error
    try:
        return parse(payload, max_bytes=limit, max_depth=_FRAME_DEPTH)
    except MeshError as error:
        raise FrameError from error
