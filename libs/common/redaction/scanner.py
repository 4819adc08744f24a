"""Removes sensitive parts from JSON values and text, by declaration, field name and format.

A prefilter of a few microseconds decides whether a full scan is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from itertools import chain
from typing import Any, NamedTuple

from libs.common.redaction import fields
from libs.common.redaction.declared import Declared
from libs.common.redaction.detectors import credentials, numbers
from libs.common.redaction.detectors.contacts import find_addresses, find_emails
from libs.common.redaction.detectors.spans import Span, marker, replaced, without_overlaps
from libs.common.redaction.known_values import KnownValues
from libs.common.redaction.lookalikes import plain_text
from libs.common.redaction.prefilter import suspects
from libs.common.redaction.rules import Rules
from libs.common.redaction.walk import UNEXAMINED, Finding, Walk

__all__ = ["UNEXAMINED", "Finding", "Redacted", "Scanner"]

MAX_DEPTH, MAX_PARTS, MAX_CHARACTERS = 64, 20_000, 262_144


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
        self.known: KnownValues | None = None
        self.max_depth, self.max_parts, self.max_characters = max_depth, max_parts, max_characters

    def knowing(self, known: KnownValues | None) -> Scanner:
        """Return a scanner that removes these values too, for one call."""
        if known is None:
            return self
        scanner = copy(self)
        scanner.known = known
        return scanner

    def suspects(self, text: str) -> bool:
        """Return whether the text, or the JSON in it, may contain anything sensitive. False is certain."""
        if suspects(text) or (not text.isascii() and suspects(plain_text(text).text)):
            return True
        if self.known is not None and (self.known.suspects(text) or not self.known.complete):
            return True
        return self._has_more and self._suspects_more(text)

    def text(self, text: str) -> Redacted:
        """Return the redacted text."""
        if len(text) > self.max_characters or (self.known is not None and not self.known.complete):
            return Redacted(marker(UNEXAMINED), (Finding("", UNEXAMINED),))
        spans = self.find(text) if self.suspects(text) else []
        if not spans:
            return Redacted(text, ())
        return Redacted(replaced(text, spans), tuple(Finding("", span.kind) for span in spans))

    def value(self, value: Any, declared: Declared | None = None) -> Redacted:
        """Return a redacted copy of a JSON value; the value itself is not changed."""
        walk = Walk(self, declared)
        return Redacted(walk.copy(value), tuple(walk.findings))

    def find(self, text: str) -> list[Span]:
        """Return the sensitive spans of the text, in order and without overlaps."""
        plain = plain_text(text)
        found = map(plain.original, self._finds(plain.text))
        return without_overlaps(found if self.known is None else chain(self.known.find(text), found))

    def _finds(self, text: str) -> Iterator[Span]:
        lowered = text.lower()
        for pattern in self._rules.patterns:
            for match in pattern.expression.finditer(text):
                yield Span(match.start(), match.end(), pattern.kind)
        yield from credentials.find_credentials(text, lowered)
        if "@" in text:
            yield from find_emails(text)
        yield from numbers.find_numbers(text, lowered)
        if text.count(".") > 2 or text.count(":") > 1:
            yield from find_addresses(text, local=self._rules.ip_addresses)

    def _suspects_more(self, text: str) -> bool:
        if self._rules.ip_addresses and ("." in text or ":" in text):
            return True
        squeezed = "".join(filter(str.isalnum, text.lower())) if self._added else ""
        return any(name in squeezed for name in self._added) or any(
            p.expression.search(text) for p in self._rules.patterns
        )
