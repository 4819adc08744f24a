"""Redacts values for hooks, and restores the redacted parts in the arguments that a hook returns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from libs.common.json.json_pointer import escaped
from libs.common.redaction.declared import DECLARED, Declared
from libs.common.redaction.detectors.spans import marker
from libs.common.redaction.scanner import Scanner
from services.executor.domain.hooks.answers import HookFailedError

# As many changes as a record holds; beyond that the root counts as changed.
_MAX_CHANGES = 32
_SHORTEST_HIDDEN = 3


@dataclass(frozen=True, slots=True)
class RedactedView:
    """A value, its redacted form, and the marks that replace the redacted parts."""

    whole: Any
    shown: Any
    marks: frozenset[str] = frozenset()

    @classmethod
    def of(cls, value: Any, declared: Declared | None, scanner: Scanner | None) -> RedactedView:
        """Redact a value. Without a scanner nothing is redacted."""
        if scanner is None:
            return cls(value, value)
        redacted = scanner.value(value, declared)
        return cls(value, redacted.value, frozenset(marker(finding.kind) for finding in redacted.findings))

    def redact_text(self, text: str, scanner: Scanner | None) -> str:
        """Redact a text about the value: its sensitive parts, and every redacted part of the value."""
        if scanner is None:
            return text
        for hidden in sorted(set(_hidden(self.whole, self.shown)), key=len, reverse=True):
            text = text.replace(hidden, marker(DECLARED))
        return str(scanner.text(text).value)


def restore_hidden(answered: dict[str, Any], view: RedactedView) -> dict[str, Any]:
    """Return the arguments of a hook's answer with the redacted parts restored.

    Raises HookFailedError when a redaction mark was moved: its value is ambiguous then.
    """
    if not view.marks:
        return answered
    restored: dict[str, Any] = _restored(answered, view.shown, view.whole)
    if any(mark in text for text in _texts(restored, view.whole) for mark in view.marks):
        raise HookFailedError("hidden_moved")
    return restored


def changes_between(before: Any, after: Any) -> list[str]:
    """Return the JSON Pointers of the differences, as deep as both values have the same shape; the root if they are
    many.
    """
    paths = list(islice(_differences(before, after, ""), _MAX_CHANGES + 1))
    return paths if len(paths) <= _MAX_CHANGES else [""]


def _restored(answered: Any, shown: Any, whole: Any) -> Any:
    if _equal(answered, shown):
        return whole
    if isinstance(answered, dict) and isinstance(shown, dict) and isinstance(whole, dict):
        return {
            key: _restored(value, shown[key], whole[key]) if key in shown and key in whole else value
            for key, value in answered.items()
        }
    if isinstance(answered, list) and isinstance(shown, list) and len(answered) == len(shown) == len(whole):
        return [_restored(*each) for each in zip(answered, shown, whole, strict=True)]
    return answered


def _hidden(whole: Any, shown: Any) -> Iterator[str]:
    """Yield every redacted text, number and name of at least three characters; shorter ones match everywhere."""
    if _equal(whole, shown):
        return
    if isinstance(whole, dict):
        for key, member in whole.items():
            there = isinstance(shown, dict) and key in shown
            if isinstance(shown, dict) and not there and len(key) >= _SHORTEST_HIDDEN:
                yield key
            yield from _hidden(member, shown[key] if there else None)
    elif isinstance(whole, list):
        for place, entry in enumerate(whole):
            there = isinstance(shown, list) and place < len(shown)
            yield from _hidden(entry, shown[place] if there else None)
    elif isinstance(whole, str | int | float) and len(str(whole)) >= _SHORTEST_HIDDEN and not isinstance(whole, bool):
        yield str(whole)


def _texts(value: Any, known: Any) -> Iterator[str]:
    """Yield every text in a value, names of members included, except where the value is unchanged."""
    if _equal(value, known):
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, member in value.items():
            there = isinstance(known, dict) and key in known
            if not there:
                yield key
            yield from _texts(member, known[key] if there else None)
    elif isinstance(value, list):
        for place, entry in enumerate(value):
            there = isinstance(known, list) and place < len(known)
            yield from _texts(entry, known[place] if there else None)


def _differences(before: Any, after: Any, path: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            there = f"{path}/{escaped(key)}"
            if key in before and key in after:
                yield from _differences(before[key], after[key], there)
            else:
                yield there
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _differences(one, other, f"{path}/{index}")
    elif not _equal(before, after):
        yield path


def _equal(one: Any, other: Any) -> bool:
    """Equal as JSON: true is not 1, to whatever depth."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return type(one) is type(other) and bool(one == other)
