"""Where a proof stopped."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gap:
    """A keyword of the goal that could not be shown to hold: at which schema, and for which property where it is about
    one."""

    pointer: str
    keyword: str
    name: str = ""
