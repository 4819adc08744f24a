"""Bounds the work of validating a value: the visits of a schema for one value, times the number of values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from libs.common.json.jsonio import MAX_DEPTH

# One unit is the evaluation of one keyword, about 30 ns.
INLINE_UNITS = 20_000
"""Up to this much work is done on the event loop."""
MAX_UNITS = 20_000_000
"""More work is refused. It would take a core more than half a second."""
INLINE_VALUES = 2_000
INLINE_BYTES = 64 * 1024
LIGHT_BYTES = 1024
"""Up to this much text is searched for secrets on the event loop. Some texts take 3 microseconds for each character,
and the calls of a group may all be searched in one turn of the loop."""
# Matching a pattern reads about so many bytes in one unit.
_BYTES_PER_UNIT = 4


class Size(NamedTuple):
    """The size of a value."""

    levels: tuple[int, ...]
    """The number of values at each depth: 1 for the value itself, then its parts, their parts, and so on."""
    text_bytes: int
    """The length of all texts and names in it."""


@dataclass(frozen=True, slots=True)
class ValidationCost:
    """The cost of one schema, per value and per byte of text, at depth 0, 1, and so on; the last holds for deeper."""

    per_value: tuple[int, ...] = (0,)
    per_byte: tuple[int, ...] = (0,)

    def units(self, size: Size) -> int:
        """Return a bound of the work of validating a value of this size."""
        visits = sum(_at(self.per_value, depth) * count for depth, count in enumerate(size.levels))
        scans = max(_at(self.per_byte, depth) for depth in range(len(size.levels)))
        return visits + scans * size.text_bytes // _BYTES_PER_UNIT

    def runs_inline(self, size: Size) -> bool:
        """Return whether a value of this size may be parsed, validated and hashed on the event loop."""
        small = max(size.levels) <= INLINE_VALUES and size.text_bytes <= INLINE_BYTES
        return small and self.units(size) <= INLINE_UNITS


def size_of_json(payload: bytes) -> Size:
    """Return the size of JSON text without parsing it. May be too high: any value may be at any depth."""
    opened = payload.count(b"[") + payload.count(b"{")
    return Size((1, *[opened + payload.count(b",")] * min(opened, MAX_DEPTH)), len(payload))


def is_small(value: Any) -> bool:
    """Return whether a parsed value is small enough for the event loop. Looks at no more of it than that."""
    left, waiting = INLINE_VALUES, [value]
    while waiting and left >= 0:
        current = waiting.pop()
        if isinstance(current, dict | list):
            left -= len(current)
            if left >= 0:
                waiting.extend(current.values() if isinstance(current, dict) else current)
    return left >= 0


def is_light(value: Any) -> bool:
    """Return whether a parsed value is small enough to be redacted on the event loop. Looks at no more of it."""
    values, text, waiting = INLINE_VALUES, LIGHT_BYTES, [value]
    while waiting and values >= 0 and text >= 0:
        current = waiting.pop()
        if isinstance(current, str):
            text -= len(current)
        elif isinstance(current, dict | list):
            values -= len(current)
            if values >= 0:
                text -= sum(map(len, current)) if isinstance(current, dict) else 0
                waiting.extend(current.values() if isinstance(current, dict) else current)
    return values >= 0 and text >= 0


def size_of_value(value: Any) -> Size:
    """Return the size of a parsed value. Deeper than any JSON, a value of a built-in tool may contain itself."""
    levels, text, level = list[int](), 0, [value]
    while level and len(levels) <= 2 * MAX_DEPTH:
        levels.append(len(level))
        below: list[Any] = []
        for each in level:
            if isinstance(each, str):
                text += len(each)
            elif isinstance(each, dict):
                text += sum(len(name) for name in each if isinstance(name, str))
                below.extend(each.values())
            elif isinstance(each, list):
                below.extend(each)
        level = below
    return Size(tuple(levels), text)


def _at(costs: tuple[int, ...], depth: int) -> int:
    return costs[depth] if depth < len(costs) else costs[-1]
