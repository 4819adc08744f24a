"""Spans of text that finders report, and how overlaps are resolved."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Span(NamedTuple):
    """A span of text and its kind."""

    start: int
    end: int
    kind: str


def without_overlaps(spans: Iterable[Span]) -> list[Span]:
    """Return the spans in order without overlaps. The earlier one wins: finders run from the surest to the vaguest."""
    kept: list[Span] = []
    for span in spans:
        place = bisect(kept, span)
        after_previous = not place or kept[place - 1].end <= span.start
        if after_previous and (place == len(kept) or span.end <= kept[place].start):
            kept.insert(place, span)
    return kept


def replaced(text: str, spans: Iterable[Span]) -> str:
    """Return the text with a marker in place of every span."""
    parts, position = [], 0
    for start, end, kind in spans:
        parts += [text[position:start], marker(kind)]
        position = end
    parts.append(text[position:])
    return "".join(parts)


def marker(kind: str) -> str:
    """Return the marker of a removed part."""
    return f"[redacted:{kind}]"


def stands_alone(text: str, start: int, end: int) -> bool:
    """Return whether a number is not part of a word, a version, a decimal or an identifier."""
    before, after = text[max(0, start - 2) : start], text[end : end + 2]
    if before and (before[-1].isalnum() or before[-1] == "_"):
        return False
    if after and (after[0].isalnum() or after[0] == "_"):
        return False
    joined_before = len(before) == 2 and before[1] in ".-+/:" and before[0].isdigit()
    joined_after = len(after) == 2 and after[0] in ".-/:" and after[1].isalnum()
    return not joined_before and not joined_after


def positions(text: str, part: str) -> Iterator[int]:
    """Yield every position of the part."""
    place = text.find(part)
    while place >= 0:
        yield place
        place = text.find(part, place + len(part))
