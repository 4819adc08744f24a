"""Reads JSON from arguments, files and stdin, strictly: duplicate keys, NaN and Infinity are refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import typer

from toolmesh_sdk.cli.inputs import options


class _DuplicateKeyError(ValueError):
    """An object has a key twice, so a part of it would be lost."""


def read_arguments(text: str, pairs: list[str]) -> dict[str, Any]:
    """Return the arguments of a call: the JSON object, updated with each `key=value`."""
    if text == options.STDIN:
        text = read_stdin("ARGUMENTS_JSON")
    arguments = _parse_object(text) if text.strip() else {}
    return arguments | _parse_pairs(pairs)


def read_json_file(path: Path, hint: str) -> Any:
    """Return the JSON value of a file, or of stdin for `-`."""
    if str(path) == options.STDIN:
        return parse_json(read_stdin(hint), hint)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be read: {error.strerror}", param_hint=hint) from None
    except UnicodeDecodeError:
        raise typer.BadParameter(f"{path} is not UTF-8 text", param_hint=hint) from None
    return parse_json(text, hint)


def read_stdin(hint: str) -> str:
    """Return all of standard input, as UTF-8 in any locale."""
    try:
        return sys.stdin.buffer.read().decode() if sys.stdin is not None else ""
    except UnicodeDecodeError:
        raise typer.BadParameter("standard input is not UTF-8 text", param_hint=hint) from None


def parse_json(text: str, hint: str) -> Any:
    """Parse a JSON text."""
    try:
        return _parse(text)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"not valid JSON: {error}", param_hint=hint) from None


def _parse_pairs(pairs: list[str]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise typer.BadParameter(f"{pair} is not key=value", param_hint="--arg")
        if name in arguments:
            raise typer.BadParameter(f"{name} is set twice; write a list as JSON: {name}='[1, 2]'", param_hint="--arg")
        arguments[name] = _parse_json_or_text(value)
    return arguments


def _parse_object(text: str) -> dict[str, Any]:
    value = parse_json(text, "ARGUMENTS_JSON")
    if not isinstance(value, dict):
        raise typer.BadParameter('expected a JSON object, such as \'{"text": "hello"}\'', param_hint="ARGUMENTS_JSON")
    return value


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _DuplicateKeyError("an object has the same key twice")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _parse(text: str) -> Any:
    # json.loads alone accepts NaN and Infinity.
    return json.loads(text, object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_constant)


def _parse_json_or_text(value: str) -> Any:
    try:
        return _parse(value)
    except _DuplicateKeyError as error:
        raise typer.BadParameter(f"{value}: {error}", param_hint="--arg") from None
    except (ValueError, RecursionError):
        return value
