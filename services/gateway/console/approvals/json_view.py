"""JSON documents for people: one row for each value, and the rows in which two documents differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from libs.common.errors import MeshError
from libs.common.json.jsonio import dump, parse_object

MAX_ROWS = 200
MAX_VALUE_CHARS = 4000
_MAX_BYTES = 256 * 1024


class Value(NamedTuple):
    """One value of a document."""

    path: str
    """Where it is, such as `recipients[0].name`."""
    text: str
    kind: str
    """text, number, constant, empty or redacted."""


class Change(NamedTuple):
    """One difference; a value that one document lacks is None."""

    path: str
    before: str | None
    after: str | None


class Document(NamedTuple):
    """A document as rows."""

    values: tuple[Value, ...]
    omitted: int
    """How many values are not shown."""


def read_object(raw: bytes) -> dict[str, Any] | None:
    """Return a document; None if it is empty or not an object."""
    try:
        return parse_object(raw, max_bytes=_MAX_BYTES) if raw else None
    except MeshError:
        return None


def document_of(content: dict[str, Any]) -> Document:
    """Return the rows of a document, in its order."""
    values = tuple(_values(content))
    return Document(values[:MAX_ROWS], max(0, len(values) - MAX_ROWS))


def changes_between(before: dict[str, Any], after: dict[str, Any]) -> tuple[Change, ...]:
    """Return what is different, in the order of paths, at most MAX_ROWS rows."""
    old, new = ({value.path: value.text for value in _values(each)} for each in (before, after))
    paths = sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path))
    return tuple(Change(path, old.get(path), new.get(path)) for path in paths[:MAX_ROWS])


def _values(value: Any, path: str = "") -> Iterator[Value]:
    if isinstance(value, dict) and value:
        for name, child in value.items():
            yield from _values(child, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value:
        for index, child in enumerate(value):
            yield from _values(child, f"{path}[{index}]")
    else:
        yield Value(path, *_shown(value))


def _shown(value: Any) -> tuple[str, str]:
    if isinstance(value, str) and value:
        shown = value if len(value) <= MAX_VALUE_CHARS else f"{value[:MAX_VALUE_CHARS]}… ({len(value)} characters)"
        return shown, "redacted" if value.startswith("[redacted:") else "text"
    if value is None or isinstance(value, bool):
        return dump(value).decode(), "constant"
    if isinstance(value, dict | list | str):
        return {dict: "{}", list: "[]", str: '""'}[type(value)], "empty"
    return dump(value).decode(), "number"
