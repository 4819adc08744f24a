"""Implements the semantic checks of manifests: constraints between values that no schema can express. Pure.

A check is written `name:/pointer:/pointer`, such as `not_before:/start:/end`; `*` in a pointer stands for every entry,
and a shared prefix means the same entry: `not_before:/slots/*/start:/slots/*/end` checks each slot. Absent values pass:
the schema decides whether they are required. An unknown name or a wrong number of pointers makes the version invalid.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from libs.common.errors import Violation
from libs.common.json.canonical import canonical
from libs.common.json.json_pointer import EVERY, places, steps_of
from services.executor.domain.argument_spec import Rule

_FORM = re.compile(r"[a-z][a-z0-9_]*(:(/([^~/:]|~[01]|:(?!/))*)+)+")
_RFC3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ZONE = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}")
_LONGEST_PATTERN = 1000

Steps = tuple[str, ...]
Arguments = dict[str, Any]


def check_of(text: str) -> Rule:
    """Return the check of a manifest. Raises ValueError for an unknown name or a wrong number of pointers."""
    if not _FORM.fullmatch(text):
        raise ValueError("a semantic check is a name and JSON Pointers, separated by colons")
    name, *pointers = re.split(":(?=/)", text)
    if name not in _CHECKS:
        raise ValueError(f"there is no semantic check `{name[:64]}`")
    most, make = _CHECKS[name]
    if not _FEWEST[most] <= len(pointers) <= most:
        raise ValueError(f"the semantic check `{name}` takes another number of pointers")
    return make(name, tuple(steps_of(pointer) for pointer in pointers))


def _each(holds: Callable[[Any], bool], message: str) -> Callable[[str, tuple[Steps, ...]], Rule]:
    """Return a check of every value at one pointer. Null counts as absent."""

    def make(name: str, steps: tuple[Steps, ...]) -> Rule:
        def check(arguments: Arguments) -> Iterator[Violation]:
            for at, value in places(arguments, steps[0]):
                if value is not None and not holds(value):
                    yield Violation(at, name, message)

        return check

    return make


def _pair(holds: Callable[[Any, Any], bool], message: str) -> Callable[[str, tuple[Steps, ...]], Rule]:
    """Return a check of the second value against the first, where both exist."""

    def make(name: str, steps: tuple[Steps, ...]) -> Rule:
        shared, (one, other) = _shared(steps)

        def check(arguments: Arguments) -> Iterator[Violation]:
            for at, within in places(arguments, shared):
                for _, first in places(within, one):
                    for place, second in places(within, other, at):
                        if first is not None and second is not None and not holds(first, second):
                            yield Violation(place, name, message)

        return check

    return make


def _counted(holds: Callable[[int], bool], message: str) -> Callable[[str, tuple[Steps, ...]], Rule]:
    """Return a check of how many of several pointers have a value."""

    def make(name: str, steps: tuple[Steps, ...]) -> Rule:
        shared, rests = _shared(steps)

        def check(arguments: Arguments) -> Iterator[Violation]:
            for at, within in places(arguments, shared):
                given = [place for rest in rests for place, value in places(within, rest, at) if value is not None]
                if not holds(len(given)):
                    yield Violation(given[-1] if given else at, name, message)

        return check

    return make


def _requires(name: str, steps: tuple[Steps, ...]) -> Rule:
    shared, (one, other) = _shared(steps)

    def check(arguments: Arguments) -> Iterator[Violation]:
        for at, within in places(arguments, shared):
            given = [place for place, value in places(within, one, at) if value is not None]
            if given and not any(value is not None for _, value in places(within, other)):
                yield Violation(given[0], name, "needs another argument beside it")

    return check


def _shared(steps: tuple[Steps, ...]) -> tuple[Steps, tuple[Steps, ...]]:
    """The steps that all pointers begin with, and the rest of each.

    Raises ValueError when every entry of one list would have to be held against every entry of another: that is
    no valid check, and no bounded work.
    """
    length = 0
    while all(len(each) > length + 1 and each[length] == steps[0][length] for each in steps):
        length += 1
    rests = tuple(each[length:] for each in steps)
    if sum(EVERY in rest for rest in rests) > 1:
        raise ValueError("the pointers of a semantic check go through different lists")
    return steps[0][:length], rests


def _unique(name: str, steps: tuple[Steps, ...]) -> Rule:
    def check(arguments: Arguments) -> Iterator[Violation]:
        seen: set[bytes] = set()
        for at, value in places(arguments, steps[0]):
            form = canonical(value)
            if form in seen:
                yield Violation(at, name, "is there twice")
            seen.add(form)

    return check


def _moment(value: Any) -> datetime | date | float | None:
    """A value that has a place in an order: a moment, a day or a number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if not isinstance(value, str):
        return None
    try:
        if _DATE.fullmatch(value):
            return date.fromisoformat(value)
        found = _RFC3339.fullmatch(value)
        # Python reads six digits of a fraction; a moment is not told apart more finely here.
        return (
            datetime.fromisoformat(f"{found[1]}T{found[2]}{(found[3] or '')[:7]}{found[4].upper()}") if found else None
        )
    except ValueError:
        return None


def _in_order(first: Any, second: Any) -> bool:
    earlier, later = _moment(first), _moment(second)
    if isinstance(earlier, datetime) and isinstance(later, datetime):
        return earlier <= later
    if type(earlier) is date and type(later) is date:
        return earlier <= later
    numbers = isinstance(earlier, int | float) and isinstance(later, int | float)
    return numbers and earlier <= later  # type: ignore[operator]


def _is_rfc3339(value: Any) -> bool:
    return isinstance(value, str) and isinstance(_moment(value), datetime)


def _is_zone(value: Any) -> bool:
    if not isinstance(value, str) or len(value) > 64 or not _ZONE.fullmatch(value):
        return False
    try:
        return value == "UTC" or ZoneInfo(value) is not None
    except (KeyError, ValueError, OSError):
        return False


def _is_pattern(value: Any) -> bool:
    if not isinstance(value, str) or len(value) > _LONGEST_PATTERN:
        return False
    try:
        re.compile(value)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def _is_glob(value: Any) -> bool:
    """Not empty, every bracket closed, and `**` only as a whole step."""
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_PATTERN or "\0" in value:
        return False
    outside = re.sub(r"\[!?\]?[^\]]*\]", "", value)
    return "[" not in outside and all("**" not in step or step == "**" for step in value.split("/"))


def _differ(first: Any, second: Any) -> bool:
    return canonical(first) != canonical(second)


_MANY = 16
# How few pointers a check takes that takes so many at most.
_FEWEST = {1: 1, 2: 2, _MANY: 2}
_CHECKS: Mapping[str, tuple[int, Callable[[str, tuple[Steps, ...]], Rule]]] = {
    "not_before": (2, _pair(_in_order, "is before the other, or cannot be compared with it")),
    "not_less": (2, _pair(_in_order, "is less than the other, or cannot be compared with it")),
    "differs": (2, _pair(_differ, "is the same as the other")),
    "requires": (2, _requires),
    "unique": (1, _unique),
    "at_most_one_of": (_MANY, _counted(lambda given: given <= 1, "only one of these may be given")),
    "exactly_one_of": (_MANY, _counted(lambda given: given == 1, "exactly one of these must be given")),
    "at_least_one_of": (_MANY, _counted(lambda given: given >= 1, "one of these must be given")),
    "rfc3339": (1, _each(_is_rfc3339, "is not a moment as RFC 3339 writes it")),
    "timezone": (1, _each(_is_zone, "is not a known time zone")),
    "regex": (1, _each(_is_pattern, "is not a regular expression")),
    "glob": (1, _each(_is_glob, "is not a pattern of paths")),
}
