"""Renders log lines: coloured columns on a terminal, one JSON object a line for programs."""

from __future__ import annotations

import json
import re
from typing import Any

_TIME_KEYS, _LEVEL_KEYS, _EVENT_KEYS = ("ts", "time", "timestamp"), ("level",), ("event", "message", "msg")
# The same on every line of a service; the part's name says as much.
_HIDDEN = {"service", "instance", "environment", "version"}
_CLOCK = re.compile(r"T(\d\d:\d\d:\d\d(?:\.\d{1,3})?)")
_COLOURS = {"error": "31", "critical": "31", "fatal": "31", "warning": "33", "warn": "33", "debug": "2"}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def render_for_program(part: str, line: str) -> str:
    """Returns one JSON object: the line's own fields and its part; a line that is no JSON is the field `line`."""
    fields = _fields(line)
    return json.dumps({"part": part, **fields} if fields else {"part": part, "line": line}, ensure_ascii=False)


def render_for_terminal(part: str, line: str) -> str:
    """Returns time, part, level, event and the other fields as `name=value`. Control characters are shown as escapes:
    a log holds texts of callers."""
    fields = _fields(line)
    if not fields:
        return f"{_dim(f'{part:<10}')} {_printable(line)}"
    clock, level, event = (_take(fields, keys) for keys in (_TIME_KEYS, _LEVEL_KEYS, _EVENT_KEYS))
    rest = "  ".join(f"{_dim(name + '=')}{_value(value)}" for name, value in fields.items() if name not in _HIDDEN)
    found = _CLOCK.search(clock)
    colour = _COLOURS.get(level.lower(), "")
    shown = f"{level.lower():<7} {_printable(event)}"
    return f"{_dim(found[1] if found else clock):<12} {part:<10} {_colour(shown, colour)}  {rest}".rstrip()


def _fields(line: str) -> dict[str, Any]:
    if not line.startswith("{"):
        return {}
    try:
        document = json.loads(line)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _take(fields: dict[str, Any], names: tuple[str, ...]) -> str:
    for name in names:
        if name in fields:
            return str(fields.pop(name))
    return ""


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return _printable(text) if text and " " not in text else json.dumps(text, ensure_ascii=False)


def _printable(text: str) -> str:
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def _dim(text: str) -> str:
    return _colour(text, "2")


def _colour(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if code else text
