"""A point where a proof stopped."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UnprovenKeyword:
    """A keyword of the goal that is not proven: the pointer of its schema and, where it is about one, the property."""

    pointer: str
    keyword: str
    name: str = ""
