"""Time-ordered identifiers."""

from __future__ import annotations

import os
import random
import time


def new_id() -> str:
    """Return a UUID version 7 (RFC 9562) as 36 characters: unique without coordination, ordered to the millisecond."""
    millis = f"{time.time_ns() // 1_000_000:012x}"
    try:
        tail = _TAILS.pop()
    except IndexError:
        tail = _fetch()
    return f"{millis[:8]}-{millis[8:]}-{tail}"


# The random tails of ids, made in batches: asking the system for randomness costs more than the rest of an id.
_TAILS: list[str] = []
_FETCHED = 256
_DIGITS = 19
# The variant digit of RFC 9562 has two random bits.
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
# After a fork both processes would use the same tails.
os.register_at_fork(after_in_child=_TAILS.clear)


def _fetch() -> str:
    """Refill the tails and return one."""
    digits = os.urandom(_FETCHED * _DIGITS // 2).hex()
    chances = [digits[start : start + _DIGITS] for start in range(0, _FETCHED * _DIGITS, _DIGITS)]
    tails = [f"7{chance[:3]}-{_VARIANT[chance[3]]}{chance[4:7]}-{chance[7:]}" for chance in chances]
    _TAILS.extend(tails[1:])
    return tails[0]


def new_trace_id() -> str:
    """Return a W3C trace id: 32 hex digits, never all zero."""
    return f"{random.getrandbits(128) or 1:032x}"


def new_span_id() -> str:
    """Return a W3C span id: 16 hex digits."""
    return f"{random.getrandbits(64) or 1:016x}"
