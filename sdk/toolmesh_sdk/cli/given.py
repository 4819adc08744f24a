"""What a person hands to a command as JSON: read strictly, refused in words."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import typer

from toolmesh_sdk.cli import options


def read_arguments(text: str, pairs: list[str]) -> dict[str, Any]:
    """Return the arguments of a call: the JSON object, with each `key=value` set in it."""
    if text == options.STDIN:
        text = sys.stdin.read()
    given = _json_object(text) if text.strip() else {}
    return given | _pairs(pairs)


def json_file(path: Path, hint: str) -> Any:
    """Return the JSON of a file, or of stdin for `-`."""
    try:
        text = sys.stdin.read() if str(path) == options.STDIN else path.read_text(encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be read: {error.strerror}", param_hint=hint) from None
    except UnicodeDecodeError:
        raise typer.BadParameter(f"{path} is not text in UTF-8", param_hint=hint) from None
    return json_from(text, hint)


def json_from(text: str, hint: str) -> Any:
    """Return the value that a text is. An object that has a key twice is refused: one of the two would be lost."""
    try:
        return json.loads(text, object_pairs_hook=_without_duplicates)
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
        raise ValueError("an object has the same key twice")
    return value


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value
