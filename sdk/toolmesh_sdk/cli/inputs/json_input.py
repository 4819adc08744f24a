"""What a person hands to a command as JSON: read strictly, refused in words."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import typer

from toolmesh_sdk.cli.inputs import options


class _KeyTwiceError(ValueError):
    """JSON of which a part would be lost, where other texts are merely not JSON."""


def read_arguments(text: str, pairs: list[str]) -> dict[str, Any]:
    """Return the arguments of a call: the JSON object, with each `key=value` set in it."""
    if text == options.STDIN:
        text = stdin_text("ARGUMENTS_JSON")
    given = _json_object(text) if text.strip() else {}
    return given | _pairs(pairs)


def json_file(path: Path, hint: str) -> Any:
    """Return the JSON of a file, or of stdin for `-`."""
    if str(path) == options.STDIN:
        return json_from(stdin_text(hint), hint)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be read: {error.strerror}", param_hint=hint) from None
    except UnicodeDecodeError:
        raise typer.BadParameter(f"{path} is not text in UTF-8", param_hint=hint) from None
    return json_from(text, hint)


def stdin_text(hint: str) -> str:
    """Return all of standard input, which is UTF-8 whatever the locale says."""
    try:
        return sys.stdin.buffer.read().decode() if sys.stdin is not None else ""
    except UnicodeDecodeError:
        raise typer.BadParameter("standard input is not text in UTF-8", param_hint=hint) from None


def json_from(text: str, hint: str) -> Any:
    """Return the value that a text is. An object that has a key twice is refused: one of the two would be lost."""
    try:
        return _parsed(text)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"not valid JSON: {error}", param_hint=hint) from None


def _pairs(pairs: list[str]) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for pair in pairs:
        name, found, value = pair.partition("=")
        if not found or not name:
            raise typer.BadParameter(f"{pair} is not key=value", param_hint="--arg")
        if name in said:
            raise typer.BadParameter(f"{name} is given twice; a list is JSON: {name}='[1, 2]'", param_hint="--arg")
        said[name] = _json_or_text(value)
    return said


def _json_object(text: str) -> dict[str, Any]:
    value = json_from(text, "ARGUMENTS_JSON")
    if not isinstance(value, dict):
        raise typer.BadParameter('a JSON object is needed, such as \'{"text": "hello"}\'', param_hint="ARGUMENTS_JSON")
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _KeyTwiceError("an object has the same key twice")
    return value


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _parsed(text: str) -> Any:
    # Python alone would take NaN and Infinity for numbers.
    return json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_no_number)


def _json_or_text(value: str) -> Any:
    try:
        return _parsed(value)
    except _KeyTwiceError as error:
        raise typer.BadParameter(f"{value}: {error}", param_hint="--arg") from None
    except (ValueError, RecursionError):
        return value
