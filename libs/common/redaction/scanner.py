"""Removes what is sensitive from JSON values and from text: what its owner declares, what its name tells, what its form betrays.

A look that costs a few microseconds decides whether anything could be there at all; only then is every part examined.
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
from libs.common.redaction.spans import Span, marker, replaced, settled

UNEXAMINED = "unexamined"
MAX_DEPTH, MAX_PARTS, MAX_CHARACTERS = 64, 20_000, 262_144
_SHORTEST = 3
_NAMING = ("name", "key", "header", "field")


class Finding(NamedTuple):
    """Something that was removed: where, as a JSON Pointer, and what it was. Never the thing itself."""

    pointer: str
    kind: str


class Redacted(NamedTuple):
    """A copy without what was sensitive, and what that was."""

    value: Any
    findings: tuple[Finding, ...]


class Scanner:
    """Finds and removes, by the built-in rules and somebody's additions. Beyond its bounds everything is removed unexamined."""

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
        """Say whether anything in the text, or in the JSON that it is, could be sensitive. A no is certain."""
        if suspects(text) or (not text.isascii() and suspects(text.translate(_PLAIN))):
            return True
        return self._has_more and self._suspects_more(text)

    def text(self, text: str) -> Redacted:
        """Return the text without what is sensitive in it."""
        if len(text) > self.max_characters:
            return Redacted(marker(UNEXAMINED), (Finding("", UNEXAMINED),))
        spans = self.find(text) if self.suspects(text) else []
        if not spans:
            return Redacted(text, ())
        return Redacted(replaced(text, spans), tuple(Finding("", span.kind) for span in spans))

    def value(self, value: Any, declared: Declared | None = None) -> Redacted:
        """Return a copy of a JSON value without what is sensitive in it; the value itself is left alone."""
        walk = _Walk(self, declared)
        return Redacted(walk.copy(value), tuple(walk.findings))

    def find(self, text: str) -> list[Span]:
        """Return where in the text something is sensitive, in order and without overlaps."""
        plain = text if text.isascii() else text.translate(_PLAIN)
        return settled(self._finds(plain))

    def _finds(self, text: str) -> Iterator[Span]:
        lowered = text.lower()
        for pattern in self._rules.patterns:
            for found in pattern.expression.finditer(text):
                yield Span(found.start(), found.end(), pattern.kind)
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

    def _visit(self, value: Any, path: tuple[str, ...], place: Declaration | None) -> Any:
        if place is not None and Declared.covers(place):
            return self._removed(path, DECLARED)
        self._parts -= 1
        if self._parts < 0 or len(path) > self._scanner.max_depth:
            return self._removed(path, UNEXAMINED)
        if isinstance(value, str):
            return self._text(value, path)
        if isinstance(value, dict):
            return self._object(value, path, place)
        if isinstance(value, list):
            return [self._visit(item, (*path, str(n)), self._at_index(place, n)) for n, item in enumerate(value)]
        if type(value) is int and is_card(str(value)):
            return self._removed(path, numbers.CARD)
        return value

    def _object(self, value: dict[str, Any], path: tuple[str, ...], place: Declaration | None) -> dict[str, Any]:
        copied: dict[str, Any] = {}
        repeated: dict[str, int] = {}
        told = self._told(value)
        hides_names = place is not None and self._declared is not None and self._declared.covers_names(place)
        for key, item in value.items():
            # The name of a member is shown as well, so it is examined as well.
            spans = [Span(0, len(key), DECLARED)] if hides_names else self._found(key)
            shown = _untaken(replaced(key, spans) if spans else key, copied, repeated)
            self.findings.extend(Finding(pointer_of((*path, shown)), span.kind) for span in spans)
            below, under = (*path, shown), self._at_key(place, key)
            kind = self._scanner.names.means(key, item) or (told if key == "value" else "")
            # What is declared says so, whatever its name would have said.
            told_apart = kind and not (under is not None and Declared.covers(under))
            copied[shown] = self._removed(below, kind) if told_apart else self._visit(item, below, under)
        return copied

    def _told(self, value: dict[str, Any]) -> str:
        """`{"name": "Authorization", "value": ...}` is a field that is spelled out."""
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

    def _at_key(self, place: Declaration | None, key: str) -> Declaration | None:
        return None if place is None or self._declared is None else self._declared.below_key(place, key)

    def _at_index(self, place: Declaration | None, index: int) -> Declaration | None:
        return None if place is None or self._declared is None else self._declared.below_index(place, index)


class _PlainCharacters(dict[int, int]):
    """Digits, spaces and dashes of every script as those of ASCII, one for one, so that places in the text stay what they are."""

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
    """Return a name that no other member has. They are numbered, so that of very many none is compared with all the others."""
    free = name
    while free in taken:
        repeated[name] = nth = repeated.get(name, 0) + 1
        free = f"{name}'{nth}" if nth > 1 else f"{name}'"
    return free
