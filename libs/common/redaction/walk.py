"""One pass over a JSON value that copies it without its sensitive parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from libs.common.json.json_pointer import pointer_of
from libs.common.redaction.declared import DECLARED, Declaration, Declared
from libs.common.redaction.detectors import numbers
from libs.common.redaction.detectors.checksums import is_card
from libs.common.redaction.detectors.spans import Span, marker, replaced, without_overlaps
from libs.common.redaction.sequences import is_list_of_pairs, option_kind, option_login

if TYPE_CHECKING:
    from libs.common.redaction.fields import FieldNames
    from libs.common.redaction.known_values import KnownValues

UNEXAMINED = "unexamined"
_SHORTEST = 3
_NAMING = ("name", "key", "header", "field")


class Finding(NamedTuple):
    """A removed part: its JSON Pointer and its kind, never its value."""

    pointer: str
    kind: str


class TextScanner(Protocol):
    """What a walk asks about the texts and names that it meets."""

    names: FieldNames
    known: KnownValues | None
    max_depth: int
    max_parts: int
    max_characters: int

    def suspects(self, text: str) -> bool:
        """Return whether the text may contain anything sensitive. False is certain."""

    def find(self, text: str) -> list[Span]:
        """Return the sensitive spans of the text, in order and without overlaps."""


class Walk:
    """One pass over one value."""

    def __init__(self, scanner: TextScanner, declared: Declared | None) -> None:
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
            return self._list(value, path, declaration)
        if type(value) is int and is_card(str(value)):
            return self._removed(path, numbers.CARD)
        if self._repeats_number(value):
            return self._removed(path, DECLARED)
        return value

    def _repeats_number(self, value: Any) -> bool:
        known = self._scanner.known
        return known is not None and type(value) in (int, float) and known.is_number(value)

    def _list(self, items: list[Any], path: tuple[str, ...], declaration: Declaration | None) -> list[Any]:
        pairs = is_list_of_pairs(items)
        copied: list[Any] = []
        previous: Any = None
        for index, item in enumerate(items):
            below, under = (*path, str(index)), self._at_index(declaration, index)
            if under is not None and Declared.covers(under):
                copied.append(self._removed(below, DECLARED))
            elif pairs and (kind := self._scanner.names.means(*item)):
                name = self._visit(item[0], (*below, "0"), self._at_index(under, 0))
                copied.append([name, self._removed((*below, "1"), kind)])
            elif kind := option_kind(self._scanner.names, previous, item):
                copied.append(self._removed(below, kind))
            elif login := option_login(previous, item):
                copied.append(self._text(item, below, login))
            else:
                copied.append(self._visit(item, below, under))
            previous = item
        return copied

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

    def _text(self, text: str, path: tuple[str, ...], *sure: Span) -> str:
        self._characters -= len(text)
        known = self._scanner.known
        if self._characters < 0 or (known is not None and not known.complete):
            return self._removed(path, UNEXAMINED)
        spans = without_overlaps([*sure, *self._found(text)]) if sure else self._found(text)
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


def _untaken(name: str, taken: dict[str, Any], repeated: dict[str, int]) -> str:
    """Return a name that no other member has. Repetitions are numbered, so that no search is quadratic."""
    free = name
    while free in taken:
        repeated[name] = nth = repeated.get(name, 0) + 1
        free = f"{name}'{nth}" if nth > 1 else f"{name}'"
    return free
