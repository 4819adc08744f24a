"""Identifiers that sort by the time they were made."""

from __future__ import annotations

import os
import random
import time


def new_id() -> str:
    """Return a UUID version 7 (RFC 9562) as 36 characters: unique without coordination, ordered to the millisecond."""
    millis = time.time_ns() // 1_000_000
    tail = bytearray(os.urandom(10))
    tail[0] = 0x70 | (tail[0] & 0x0F)
    tail[2] = 0x80 | (tail[2] & 0x3F)
    text = f"{millis:012x}{tail.hex()}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def new_trace_id() -> str:
    """Return a W3C trace id: 32 hex digits, never all zero."""
    return f"{random.getrandbits(128) or 1:032x}"


def new_span_id() -> str:
    """Return a W3C span id: 16 hex digits."""
    return f"{random.getrandbits(64) or 1:016x}"
