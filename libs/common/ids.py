"""Identifiers that sort by the time they were made."""

from __future__ import annotations

import os
import random
import time


def new_id() -> str:
    """Return a UUID version 7 (RFC 9562) as 36 characters: unique without coordination, ordered to the millisecond."""
    chance = _CHANCE.take()
    millis = f"{time.time_ns() // 1_000_000:012x}"
    variant = _VARIANT[chance[3]]
    return f"{millis[:8]}-{millis[8:]}-7{chance[:3]}-{variant}{chance[4:7]}-{chance[7:]}"


class _Chance:
    """Hex digits from the system's generator, fetched for many ids at once: asking it costs more than all the rest of an id."""

    DIGITS = 19

    def __init__(self) -> None:
        self._digits, self._place = "", 0

    def take(self) -> str:
        """Return digits that were never given away before."""
        end = self._place + self.DIGITS
        if end > len(self._digits):
            self._digits, self._place, end = os.urandom(4096).hex(), 0, self.DIGITS
        taken, self._place = self._digits[self._place : end], end
        return taken

    def forget(self) -> None:
        """Forget what was fetched: after a fork, both processes would give it away."""
        self._digits, self._place = "", 0


# The digit that says which layout of RFC 9562 this is has two random bits.
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
_CHANCE = _Chance()
os.register_at_fork(after_in_child=_CHANCE.forget)


def new_trace_id() -> str:
    """Return a W3C trace id: 32 hex digits, never all zero."""
    return f"{random.getrandbits(128) or 1:032x}"


def new_span_id() -> str:
    """Return a W3C span id: 16 hex digits."""
    return f"{random.getrandbits(64) or 1:016x}"
