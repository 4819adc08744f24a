"""What a hook is shown of a value, and how what it was not shown survives the changes that it makes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from libs.common.redaction.declared import DECLARED, Declared
from libs.common.redaction.scanner import Scanner
from libs.common.redaction.spans import marker
from services.executor.domain.hooks.answers import HookFailedError

# As many changes as a record holds; beyond them the whole is what changed.
_MAX_CHANGES = 32
_SHORTEST_HIDDEN = 3


@dataclass(frozen=True, slots=True)
class RedactedView:
    """A value as it is, as a hook sees it, and the marks that stand for what it does not see."""

    whole: Any
    shown: Any
    marks: frozenset[str] = frozenset()

    @classmethod
    def of(cls, value: Any, declared: Declared | None, scanner: Scanner | None) -> RedactedView:
        """Return what is seen of a value: all of it, where nobody is to look for secrets."""
        if scanner is None:
            return cls(value, value)
        redacted = scanner.value(value, declared)
        return cls(value, redacted.value, frozenset(marker(finding.kind) for finding in redacted.findings))

    def words(self, text: str, scanner: Scanner | None) -> str:
        """Return a text about the value for whoever sees no more of it: without what is sensitive in it, and without what was hidden."""
        if scanner is None:
            return text
        for hidden in sorted(set(_hidden(self.whole, self.shown)), key=len, reverse=True):
            text = text.replace(hidden, marker(DECLARED))
        return str(scanner.text(text).value)


def restore_hidden(answered: dict[str, Any], sight: RedactedView) -> dict[str, Any]:
    """Return the arguments that a hook answered, with what it was not shown back in its place.

    Raises HookFailedError when a mark that stood for something hidden is anywhere but where it was: nobody could tell what it means there.
    """
    if not sight.marks:
        return answered
    restored: dict[str, Any] = _restored(answered, sight.shown, sight.whole)
    if any(mark in text for text in _texts(restored, sight.whole) for mark in sight.marks):
        raise HookFailedError("hidden_moved")
    return restored


def changes_between(before: Any, after: Any) -> list[str]:
    """Return the JSON Pointers of the places that differ, as deep as both have the same form; the root alone if they are many."""
    found = list(_differences(before, after, ""))
    return found if len(found) <= _MAX_CHANGES else [""]


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
    """Every text, number and name that is not shown as it is; those of a letter or two say nothing, and would be found everywhere."""
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
    """Every text in a value, names of members included, except where it is what was there before."""
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


def _differences(before: Any, after: Any, place: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            there = f"{place}/{key.replace('~', '~0').replace('/', '~1')}"
            if key in before and key in after:
                yield from _differences(before[key], after[key], there)
            else:
                yield there
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _differences(one, other, f"{place}/{index}")
    elif not _equal(before, after):
        yield place


def _equal(one: Any, other: Any) -> bool:
    """Equal as JSON: true is not 1, to whatever depth."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return type(one) is type(other) and bool(one == other)
