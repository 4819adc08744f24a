"""Removes sensitive parts from JSON values and text, by declaration, field name and format.

A prefilter of a few microseconds decides whether a full scan is needed.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Any, NamedTuple

from libs.common.json.json_pointer import pointer_of
from libs.common.redaction import credentials, fields, numbers
from libs.common.redaction.checksums import is_card
from libs.common.redaction.contacts import find_addresses, find_emails
from libs.common.redaction.declared import DECLARED, Declaration, Declared
from libs.common.redaction.prefilter import suspects
from libs.common.redaction.rules import Rules
from libs.common.redaction.spans import Span, marker, replaced, without_overlaps

UNEXAMINED = "unexamined"
MAX_DEPTH, MAX_PARTS, MAX_CHARACTERS = 64, 20_000, 262_144
_SHORTEST = 3
_NAMING = ("name", "key", "header", "field")


class Finding(NamedTuple):
    """A removed part: its JSON Pointer and its kind, never its value."""

    pointer: str
    kind: str


class Redacted(NamedTuple):
    """A redacted copy and its findings."""

    value: Any
    findings: tuple[Finding, ...]


class Scanner:
    """Finds and removes sensitive parts by the built-in rules and additional ones. Beyond its limits it removes
    everything.
    """

    def __init__(
        self,
        rules: Rules | None = None,
        *,
        max_depth: int = MAX_DEPTH,
        max_parts: int = MAX_PARTS,
        max_characters: int = MAX_CHARACTERS,
    ) -> None:
        self._rules = rules or Rules()
        self.names = fields.FieldNames(self._rules.fields)
        self._added = tuple("".join(fields.words(name)) for name in self._rules.fields)
        self._has_more = bool(self._added or self._rules.patterns or self._rules.ip_addresses)
        self.max_depth, self.max_parts, self.max_characters = max_depth, max_parts, max_characters

    def suspects(self, text: str) -> bool:
        """Return whether the text, or the JSON in it, may contain anything sensitive. False is certain."""
        if suspects(text) or (not text.isascii() and suspects(text.translate(_PLAIN))):
            return True
        return self._has_more and self._suspects_more(text)

    def text(self, text: str) -> Redacted:
        """Return the redacted text."""
        if len(text) > self.max_characters:
            return Redacted(marker(UNEXAMINED), (Finding("", UNEXAMINED),))
        spans = self.find(text) if self.suspects(text) else []
        if not spans:
            return Redacted(text, ())
        return Redacted(replaced(text, spans), tuple(Finding("", span.kind) for span in spans))

    def value(self, value: Any, declared: Declared | None = None) -> Redacted:
        """Return a redacted copy of a JSON value; the value itself is not changed."""
        walk = _Walk(self, declared)
        return Redacted(walk.copy(value), tuple(walk.findings))

    def find(self, text: str) -> list[Span]:
        """Return the sensitive spans of the text, in order and without overlaps."""
        plain = text if text.isascii() else text.translate(_PLAIN)
        return without_overlaps(self._finds(plain))

    def _finds(self, text: str) -> Iterator[Span]:
        lowered = text.lower()
        for pattern in self._rules.patterns:
            for match in pattern.expression.finditer(text):
                yield Span(match.start(), match.end(), pattern.kind)
        yield from credentials.find_credentials(text, lowered)
        if "@" in text:
            yield from find_emails(text)
        yield from numbers.find_numbers(text, lowered)
        if self._rules.ip_addresses:
            yield from find_addresses(text)

    def _suspects_more(self, text: str) -> bool:
        if self._rules.ip_addresses and ("." in text or ":" in text):
            return True
        squeezed = "".join(filter(str.isalnum, text.lower())) if self._added else ""
        return any(name in squeezed for name in self._added) or any(
            p.expression.search(text) for p in self._rules.patterns
        )


class _Walk:
    """One pass over one value."""

    def __init__(self, scanner: Scanner, declared: Declared | None) -> None:
        self._scanner, self._declared = scanner, declared
        self._parts, self._characters = scanner.max_parts, scanner.max_characters
        self.findings: list[Finding] = []

    def copy(self, value: Any) -> Any:
        return self._visit(value, (), None if self._declared is None else self._declared.root())

    def _visit(self, value: Any, path: tuple[str, ...], declaration: Declaration | None) -> Any:
        if declaration is not None and Declared.covers(declaration):
            return self._removed(path, DECLARED)
        self._parts -= 1
        if self._parts < 0 or len(path) > self._scanner.max_depth:
            return self._removed(path, UNEXAMINED)
        if isinstance(value, str):
            return self._text(value, path)
        if isinstance(value, dict):
            return self._object(value, path, declaration)
        if isinstance(value, list):
            return [self._visit(item, (*path, str(n)), self._at_index(declaration, n)) for n, item in enumerate(value)]
        if type(value) is int and is_card(str(value)):
            return self._removed(path, numbers.CARD)
        return value

    def _object(self, value: dict[str, Any], path: tuple[str, ...], declaration: Declaration | None) -> dict[str, Any]:
        copied: dict[str, Any] = {}
        repeated: dict[str, int] = {}
        named_kind = self._spelled_out_kind(value)
        hides_names = (
            declaration is not None and self._declared is not None and self._declared.covers_names(declaration)
        )
        for key, item in value.items():
            # Member names are shown too, so they are scanned too.
            spans = [Span(0, len(key), DECLARED)] if hides_names else self._found(key)
            shown = _untaken(replaced(key, spans) if spans else key, copied, repeated)
            self.findings.extend(Finding(pointer_of((*path, shown)), span.kind) for span in spans)
            below, under = (*path, shown), self._at_key(declaration, key)
            kind = self._scanner.names.means(key, item) or (named_kind if key == "value" else "")
            # A declaration takes precedence over the name.
            remove = kind and not (under is not None and Declared.covers(under))
            copied[shown] = self._removed(below, kind) if remove else self._visit(item, below, under)
        return copied

    def _spelled_out_kind(self, value: dict[str, Any]) -> str:
        """Return the kind of a spelled-out field such as `{"name": "Authorization", "value": ...}`; empty if it is
        none.
        """
        if "value" not in value:
            return ""
        for naming in _NAMING:
            name = value.get(naming)
            if isinstance(name, str) and (kind := self._scanner.names.means(name, value["value"])):
                return kind
        return ""

    def _text(self, text: str, path: tuple[str, ...]) -> str:
        self._characters -= len(text)
        if self._characters < 0:
            return self._removed(path, UNEXAMINED)
        spans = self._found(text)
        if not spans:
            return text
        self.findings.extend(Finding(pointer_of(path), span.kind) for span in spans)
        return replaced(text, spans)

    def _found(self, text: str) -> list[Span]:
        return self._scanner.find(text) if len(text) >= _SHORTEST and self._scanner.suspects(text) else []

    def _removed(self, path: tuple[str, ...], kind: str) -> str:
        self.findings.append(Finding(pointer_of(path), kind))
        return marker(kind)

    def _at_key(self, declaration: Declaration | None, key: str) -> Declaration | None:
        return None if declaration is None or self._declared is None else self._declared.below_key(declaration, key)

    def _at_index(self, declaration: Declaration | None, index: int) -> Declaration | None:
        return None if declaration is None or self._declared is None else self._declared.below_index(declaration, index)


class _PlainCharacters(dict[int, int]):
    """Maps digits, spaces and dashes of every script to ASCII, one to one, so that positions stay the same."""

    def __missing__(self, point: int) -> int:
        character = chr(point)
        digit = unicodedata.decimal(character, -1)
        category = unicodedata.category(character)
        plain = 48 + digit if digit >= 0 else 32 if category == "Zs" else 45 if category == "Pd" else point
        if len(self) < 4096:
            self[point] = plain
        return plain


_PLAIN = _PlainCharacters()


def _untaken(name: str, taken: dict[str, Any], repeated: dict[str, int]) -> str:
    """Return a name that no other member has. Repetitions are numbered, so that no search is quadratic."""
    free = name
    while free in taken:
        repeated[name] = nth = repeated.get(name, 0) + 1
        free = f"{name}'{nth}" if nth > 1 else f"{name}'"
    return free
