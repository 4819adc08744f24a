"""The time zones that policies name, and the time there.

A zone must be a literal of the IANA database: Cedar would take an unknown one as absent, and a policy about it would
never match.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

_ZONES = {".": {"left": {"Var": "context"}, "attr": "zones"}}


def zones_read(conditions: Any) -> frozenset[str]:
    """Return the zones that conditions name."""
    return frozenset(name for name in _names(conditions) if name is not None)


def unknown_zones(conditions: Any) -> list[str]:
    """Return what is wrong with the zones that conditions name: unknown ones, and expressions instead of a literal."""
    known = _known()
    return [
        "a time zone must be a literal" if name is None else f"there is no time zone `{name}`"
        for name in dict.fromkeys(_names(conditions))
        if name not in known
    ]


def zone_tags(time: datetime, zones: Iterable[str]) -> dict[str, dict[str, int | str]]:
    """Return the time in each zone, as the schema has it."""
    return {name: _fields(time.astimezone(ZoneInfo(name))) for name in zones}


def _fields(time: datetime) -> dict[str, int | str]:
    return {
        "hour": time.hour,
        "minute": time.minute,
        "weekday": time.isoweekday(),
        "date": time.date().isoformat(),
    }


@lru_cache(maxsize=1)
def _known() -> frozenset[str]:
    return frozenset(available_timezones())


def _names(value: Any) -> Iterator[str | None]:
    """Yield the zone of each access in the JSON form of a policy; None for an expression that is no literal, and for
    any other use of the zones."""
    if value == _ZONES:
        yield None
    elif isinstance(value, list):
        for member in value:
            yield from _names(member)
    elif isinstance(value, dict):
        for operator, operands in value.items():
            if operator in ("getTag", "hasTag") and operands["left"] == _ZONES:
                name = operands["right"].get("Value")
                yield name if isinstance(name, str) else None
            else:
                yield from _names(operands)
