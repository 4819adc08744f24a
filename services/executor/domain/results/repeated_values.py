"""Removes the sensitive values of a call's arguments from its result, its error and its preview."""

from __future__ import annotations

from typing import Any

from libs.common.errors import MeshError, Violation
from libs.common.json.json_pointer import escaped
from libs.common.json.jsonio import dump
from libs.common.redaction.declared import Declaration, Declared
from libs.common.redaction.detectors.spans import replaced, without_overlaps
from libs.common.redaction.known_values import KnownValues
from libs.common.redaction.scanner import Scanner
from services.executor.domain.run import Forecast


def hide_in_result(value: Any, declared: Declared | None, known: KnownValues | None) -> tuple[Any, tuple[str, ...]]:
    """Return the result without the values, and the JSON Pointers of the changes.

    A field that the output schema declares sensitive stays: the tool returns it on purpose. So do numbers, which the
    schema may need.
    """
    if known is None or not _repeats(value, known):
        return value, ()
    changed: dict[str, None] = {}
    root = None if declared is None else declared.root()
    return _hidden(value, known, declared, root, "", changed), tuple(changed)


def _repeats(value: Any, known: KnownValues) -> bool:
    try:
        return known.suspects(dump(value).decode("utf-8", "replace"))
    except MeshError:
        # It has no JSON form, and is refused for that.
        return False


def hide_in_error(error: MeshError, scanner: Scanner | None) -> None:
    """Remove the values from all that a caller or a record sees of an error."""
    known = None if scanner is None else scanner.known
    if known is None:
        return
    error.message = hide_in_text(error.message, known)
    error.args = (f"{error.row.code} {error.reason.name}: {error.message}",)
    error.metadata = {name: hide_in_text(text, known) for name, text in error.metadata.items()}
    error.violations = tuple(
        Violation(hide_in_text(each.path, known), each.rule, hide_in_text(each.message, known))
        for each in error.violations
    )


def hide_in_forecast(forecast: Forecast, known: KnownValues) -> tuple[str, tuple[tuple[str, bool], ...]]:
    """Return the impact and the preconditions of a preview without the values."""
    preconditions = tuple((hide_in_text(text, known), holds) for text, holds in forecast.preconditions)
    return hide_in_text(forecast.impact, known), preconditions


def hide_in_text(text: str, known: KnownValues) -> str:
    """Return the text without the values."""
    spans = without_overlaps(known.find(text))
    return replaced(text, spans) if spans else text


def _hidden(
    value: Any,
    known: KnownValues,
    declared: Declared | None,
    declaration: Declaration | None,
    path: str,
    changed: dict[str, None],
) -> Any:
    if declaration is not None and Declared.covers(declaration):
        return value
    if isinstance(value, str):
        shown = hide_in_text(value, known)
        if shown != value:
            changed[path] = None
        return shown
    if isinstance(value, list):
        below = [
            None if declared is None or declaration is None else declared.below_index(declaration, index)
            for index in range(len(value))
        ]
        return [
            _hidden(item, known, declared, below[index], f"{path}/{index}", changed) for index, item in enumerate(value)
        ]
    if isinstance(value, dict):
        return _hidden_members(value, known, declared, declaration, path, changed)
    return value


def _hidden_members(
    value: dict[str, Any],
    known: KnownValues,
    declared: Declared | None,
    declaration: Declaration | None,
    path: str,
    changed: dict[str, None],
) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, item in value.items():
        shown = hide_in_text(name, known)
        while shown != name and (shown in members or shown in value):
            shown += "'"
        if shown != name:
            changed[f"{path}/{escaped(shown)}"] = None
        below = None if declared is None or declaration is None else declared.below_key(declaration, name)
        members[shown] = _hidden(item, known, declared, below, f"{path}/{escaped(shown)}", changed)
    return members
