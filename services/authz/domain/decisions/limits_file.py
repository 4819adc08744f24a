"""Validates `limits.json` strictly and reports all problems with line and column."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MAX_RULES = 256
MAX_PATTERNS = 64
MAX_WINDOW_SECONDS = 31 * 86_400
# Lua and JSON represent integers up to this exactly.
MAX_COUNT = 2**53 - 1

DIMENSIONS = ("caller", "agent", "tenant", "session", "tool", "namespace", "argument")
ARGUMENT = "argument"
_ID = re.compile(r"[a-z][a-z0-9-]{0,62}")
_POINTER = re.compile(r"(/([^~/]|~[01])*)+")
_TOOL = re.compile(r"([a-z*][a-z0-9*-]*\.)?[a-z*][a-z0-9_*]*")


@dataclass(frozen=True, slots=True)
class LimitProblem:
    """One problem of a `limits.json`."""

    line: int
    column: int
    rule: str
    """The broken rule: `syntax`, `unknown`, `required`, `type`, `range` or `unique`."""
    message: str


class LimitsError(Exception):
    """Lists all problems of a `limits.json`."""

    def __init__(self, problems: tuple[LimitProblem, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(f"{p.line}:{p.column} {p.message}" for p in problems))


def read_limits(text: str) -> dict[str, Any]:
    """Return the parsed document. Raises LimitsError when it is invalid."""
    try:
        document = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise LimitsError((LimitProblem(error.lineno, error.colno, "syntax", error.msg),)) from None
    except (ValueError, RecursionError) as error:
        raise LimitsError((LimitProblem(1, 1, "syntax", str(error)[:200]),)) from None
    if not isinstance(document, dict):
        raise LimitsError((LimitProblem(1, 1, "type", "must be an object"),))
    problems = tuple(_Validator(text).problems(document))
    if problems:
        raise LimitsError(problems)
    return document


class _Validator:
    """Validates a document; its text is used to locate entries."""

    def __init__(self, text: str) -> None:
        self._text = text

    def problems(self, document: Mapping[str, Any]) -> Iterator[LimitProblem]:
        for name in document.keys() - _SECTIONS.keys():
            yield LimitProblem(1, 1, "unknown", f"{name} is not a known section")
        for section, fields in _SECTIONS.items():
            entries = document.get(section, [])
            if not isinstance(entries, list) or len(entries) > MAX_RULES:
                yield LimitProblem(1, 1, "type", f"{section} must be a list of at most {MAX_RULES}")
                continue
            locations = self._locate_entries(section, document)
            for index, entry in enumerate(entries):
                line, column = locations[index]
                for rule, message in _entry_problems(entry, fields):
                    yield LimitProblem(line, column, rule, f"{section}[{index}]: {message}")
            yield from self._duplicate_ids(entries, locations)

    def _duplicate_ids(self, entries: list[Any], locations: list[tuple[int, int]]) -> Iterator[LimitProblem]:
        seen: set[Any] = set()
        for entry, (line, column) in zip(entries, locations, strict=True):
            name = entry.get("id") if isinstance(entry, dict) else None
            if isinstance(name, str) and name in seen:
                yield LimitProblem(line, column, "unique", f"the id {name} is used twice")
            seen.add(name if isinstance(name, str) else None)

    def _locate_entries(self, section: str, document: Mapping[str, Any]) -> list[tuple[int, int]]:
        """Return line and column of each entry of a section, by decoding the text from its start."""
        decoder, position = json.JSONDecoder(), self._text.index("{") + 1
        for name, value in document.items():
            position = self._text.index(":", self._skip_value(decoder, position)) + 1
            if name == section:
                return self._locate_items(decoder, self._text.index("[", position) + 1, len(value))
            position = self._text.find(",", self._skip_value(decoder, position)) + 1
        return []

    def _locate_items(self, decoder: json.JSONDecoder, position: int, count: int) -> list[tuple[int, int]]:
        locations = []
        for _ in range(count):
            begin = self._skip_blanks(position)
            locations.append((self._text.count("\n", 0, begin) + 1, begin - self._text.rfind("\n", 0, begin)))
            _, end = decoder.raw_decode(self._text, begin)
            position = self._text.find(",", end) + 1
        return locations

    def _skip_value(self, decoder: json.JSONDecoder, position: int) -> int:
        _, end = decoder.raw_decode(self._text, self._skip_blanks(position))
        return end

    def _skip_blanks(self, position: int) -> int:
        while self._text[position] in " \t\r\n":
            position += 1
        return position


def _entry_problems(entry: Any, fields: Mapping[str, Callable[[Any], str]]) -> Iterator[tuple[str, str]]:
    if not isinstance(entry, dict):
        yield "type", "must be an object"
        return
    for name, value in entry.items():
        if name not in fields:
            yield "unknown", f"{name} is not a known field"
        elif problem := fields[name](value):
            yield "type", f"{name} {problem}"
    if fields is _LIMIT:
        yield from _limit_problems(entry)
    else:
        yield from (("required", f"{name} is required") for name in fields if name not in entry)


def _limit_problems(entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "id" not in entry:
        yield "required", "id is required"
    if not any(name in entry for name in ("calls", "cost_micros", "concurrent")):
        yield "required", "one of calls, cost_micros and concurrent is required"
    if ("calls" in entry or "cost_micros" in entry) and "window_seconds" not in entry:
        yield "required", "window_seconds is required with calls and cost_micros"
    per = entry.get("per")
    if (ARGUMENT in entry) != (isinstance(per, list) and ARGUMENT in per):
        yield "required", "argument names the argument of a limit that is per argument"


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("an object has the same key twice")
    return document


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _count(lowest: int) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        valid = type(value) is int and lowest <= value <= MAX_COUNT
        return "" if valid else f"must be a whole number from {lowest}"

    return check


def _window(value: Any) -> str:
    valid = type(value) in (int, float) and 0.001 <= value <= MAX_WINDOW_SECONDS
    return "" if valid else f"must be seconds between 0.001 and {MAX_WINDOW_SECONDS}"


def _name(value: Any) -> str:
    valid = isinstance(value, str) and _ID.fullmatch(value)
    return "" if valid else "must start with a letter and have at most 63 lower-case letters, digits and hyphens"


def _dimensions(value: Any) -> str:
    valid = isinstance(value, list) and all(name in DIMENSIONS for name in value) and len({*value}) == len(value)
    return "" if valid else f"must be a list of different names out of {', '.join(DIMENSIONS)}"


def _pointer(value: Any) -> str:
    valid = isinstance(value, str) and len(value) <= 512 and _POINTER.fullmatch(value)
    return "" if valid else "must be a JSON Pointer such as /to"


def _patterns(form: re.Pattern[str]) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if not isinstance(value, list) or not 1 <= len(value) <= MAX_PATTERNS:
            return f"must be a list of 1 to {MAX_PATTERNS} patterns"
        valid = all(isinstance(text, str) and len(text) <= 512 and form.fullmatch(text) for text in value)
        return "" if valid else "has an entry that is not a pattern"

    return check


_ANY_TEXT = re.compile(r".+", re.DOTALL)
_LIMIT: Mapping[str, Callable[[Any], str]] = {
    "id": _name,
    "per": _dimensions,
    "argument": _pointer,
    "tools": _patterns(_TOOL),
    "callers": _patterns(_ANY_TEXT),
    "agents": _patterns(_ANY_TEXT),
    "tenants": _patterns(_ANY_TEXT),
    "window_seconds": _window,
    "calls": _count(0),
    "cost_micros": _count(0),
    "concurrent": _count(0),
}
_PRICE: Mapping[str, Callable[[Any], str]] = {"tools": _patterns(_TOOL), "cost_micros": _count(0)}
_SECTIONS: Mapping[str, Mapping[str, Callable[[Any], str]]] = {"limits": _LIMIT, "prices": _PRICE}
