"""The sensitive values of one call: what its arguments hold where the tool's schema declares it, found wherever else
the call repeats it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import orjson

from libs.common.redaction.declared import DECLARED, Declaration, Declared
from libs.common.redaction.detectors.spans import Span, positions

SHORTEST_KNOWN, MAX_KNOWN = 4, 64
_MAX_VISITED = 20_000
# A value is looked for by its beginning, so that the expression stays small.
_BEGINNING = 48
_SYNTAX = str.maketrans({character: f"\\{character}" for character in r"\^$.|?*+()[]{}/"})


class KnownValues:
    """Literal values of at least four characters; shorter ones would match everywhere."""

    __slots__ = ("_absent", "_numbers", "_texts", "complete")

    def __init__(self, values: set[str], *, complete: bool = True) -> None:
        self._texts = tuple(sorted(values, key=len, reverse=True)[:MAX_KNOWN])
        self._numbers = frozenset(self._texts)
        self.complete = complete and len(values) <= MAX_KNOWN
        """False if there are more values than are looked for."""
        self._absent = _absence_check(self._texts)

    def __bool__(self) -> bool:
        return bool(self._texts) or not self.complete

    def suspects(self, text: str) -> bool:
        """Return whether the text, or the JSON in it, may repeat a value. False is certain. Linear in the text."""
        if not self._texts:
            return False
        try:
            return not self._absent(text)
        except ValueError:
            # Half of a surrogate pair is not valid text.
            return True

    def find(self, text: str) -> Iterator[Span]:
        """Yield the repetitions in a text, of the longest value first."""
        for value in self._texts if self.suspects(text) else ():
            for start in positions(text, value):
                yield Span(start, start + len(value), DECLARED)

    def is_number(self, number: int | float) -> bool:
        """Return whether a number is one of the values."""
        return str(number) in self._numbers


def known_values(payload: Any, declared: Declared | None) -> KnownValues | None:
    """Return the declared values of a payload; None if there are none."""
    if declared is None:
        return None
    values: set[str] = set()
    pending: list[tuple[Any, Declaration | None]] = [(payload, declared.root())]
    visited = 0
    while pending and visited < _MAX_VISITED:
        value, declaration = pending.pop()
        visited += 1
        # None: the value lies below a declared one, and so do all of its parts.
        if declaration is not None and Declared.covers(declaration):
            declaration = None
        if isinstance(value, dict):
            if declaration is not None and declared.covers_names(declaration):
                values.update(name for name in value if len(name) >= SHORTEST_KNOWN)
            pending.extend(
                (item, None if declaration is None else declared.below_key(declaration, key))
                for key, item in value.items()
            )
        elif isinstance(value, list):
            pending.extend(
                (item, None if declaration is None else declared.below_index(declaration, index))
                for index, item in enumerate(value)
            )
        elif declaration is None and not isinstance(value, bool) and value is not None:
            text = str(value).strip()
            if len(text) >= SHORTEST_KNOWN:
                values.add(text)
    known = KnownValues(values, complete=not pending)
    return known or None


def _absence_check(values: tuple[str, ...]) -> Any:
    beginnings: set[str] = set()
    for value in values:
        beginning = value[:_BEGINNING]
        # Also as JSON spells it.
        beginnings |= {beginning, orjson.dumps(beginning)[1:-1].decode()}
    pattern = "|".join(sorted(beginning.translate(_SYNTAX) for beginning in beginnings)) or "[^\\s\\S]"
    return jsonschema_rs.Draft202012Validator(
        {"not": {"pattern": pattern}}, pattern_options=jsonschema_rs.RegexOptions()
    ).is_valid
