"""The sensitive places that a payload's owner declares: JSON Pointers, and `x-sensitivity` anywhere in its JSON Schema.

Whoever cannot follow a schema takes what it covers for sensitive. When in doubt, it is removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

MARK = "x-sensitivity"
DECLARED = "declared"
_BESIDE = ("allOf", "anyOf", "oneOf")
_SINGLE_BESIDE = ("if", "then", "else", "not")
# More schemas than this about one place are nobody's honest contract.
_MAX_SCHEMAS = 256


class Place(NamedTuple):
    """What is declared about one place of a payload and everything below it."""

    schemas: tuple[dict[str, Any], ...]
    pointers: tuple[tuple[str, ...], ...]


class Declared:
    """Knows the sensitive places of one kind of payload."""

    __slots__ = ("_pointers", "_schema")

    def __init__(self, schema: Any, pointers: Sequence[str]) -> None:
        self._pointers = tuple(tuple(_tokens(pointer)) for pointer in pointers)
        self._schema = schema if _marked_anywhere(schema) else True

    @classmethod
    def of(cls, schema: Any, pointers: Sequence[str]) -> Declared | None:
        """Return what is declared, or None when that is nothing."""
        return cls(schema, pointers) if pointers or _marked_anywhere(schema) else None

    def root(self) -> Place:
        """Return what is declared about the whole payload."""
        return Place(self._applicable([self._schema]), self._pointers)

    @staticmethod
    def covers(place: Place) -> bool:
        """Say whether the place itself is sensitive. A text that holds JSON is as soon as any of that is: nobody reads it here."""
        return () in place.pointers or any(
            MARK in schema or _marked_anywhere(schema.get("contentSchema")) for schema in place.schemas
        )

    def covers_names(self, place: Place) -> bool:
        """Say whether the names of the members of an object are sensitive."""
        named = [schema["propertyNames"] for schema in place.schemas if "propertyNames" in schema]
        return any(MARK in schema for schema in self._applicable(named))

    def below_key(self, place: Place, key: str) -> Place:
        """Return what is declared about a member of an object."""
        return Place(self._applicable(_below_key(place.schemas, key)), _below(place.pointers, key))

    def below_index(self, place: Place, index: int) -> Place:
        """Return what is declared about an element of an array."""
        return Place(self._applicable(_below_index(place.schemas, index)), _below(place.pointers, str(index)))

    def named(self, pointer: str) -> str:
        """Return a JSON Pointer without names that are sensitive: it ends where they begin."""
        place, shown = self.root(), ""
        for token in _tokens(pointer):
            if self.covers(place) or self.covers_names(place):
                break
            shown += "/" + token.replace("~", "~0").replace("/", "~1")
            # A pointer does not tell whether a number is a name or a place in a list.
            below = _below_key(place.schemas, token)
            below += _below_index(place.schemas, int(token)) if token.isdecimal() and len(token) < 10 else []
            place = Place(self._applicable(below), _below(place.pointers, token))
        return shown

    def _applicable(self, schemas: Sequence[Any]) -> tuple[dict[str, Any], ...]:
        """Every schema that may speak about the same place, followed through references and combinations."""
        waiting, found = list(schemas), []
        while waiting:
            present = waiting.pop()
            if not isinstance(present, dict):
                continue
            found.append(present)
            if len(found) > _MAX_SCHEMAS:
                return ({MARK: True},)
            waiting.extend(self._beside(present))
        return tuple(found)

    def _beside(self, schema: dict[str, Any]) -> Iterator[Any]:
        for keyword in _BESIDE:
            yield from schema.get(keyword, ())
        for keyword in _SINGLE_BESIDE:
            if keyword in schema:
                yield schema[keyword]
        yield from schema.get("dependentSchemas", {}).values()
        for keyword in ("$ref", "$dynamicRef"):
            if keyword in schema:
                yield self._referenced(schema[keyword])

    def _referenced(self, reference: str) -> Any:
        """Resolve `#` and `#/...`; no other form of reference is followed, so what it covers counts as sensitive."""
        if reference != "#" and not reference.startswith("#/"):
            return {MARK: True}
        found: Any = self._schema
        for token in _tokens(reference[1:]):
            try:
                found = found[int(token)] if isinstance(found, list) else found[token]
            except (KeyError, IndexError, ValueError, TypeError):
                return {MARK: True}
        return found


def _below_key(schemas: Sequence[dict[str, Any]], key: str) -> list[Any]:
    found: list[Any] = []
    for schema in schemas:
        if key in schema.get("properties", {}):
            found.append(schema["properties"][key])
        # Whether a pattern matches is not worth a second regular expression engine: it is taken to match.
        found.extend(schema.get("patternProperties", {}).values())
        found.extend(schema[word] for word in ("additionalProperties", "unevaluatedProperties") if word in schema)
    return found


def _below_index(schemas: Sequence[dict[str, Any]], index: int) -> list[Any]:
    found: list[Any] = []
    for schema in schemas:
        found.extend(schema.get("prefixItems", ())[index : index + 1])
        found.extend(schema[word] for word in ("items", "contains", "unevaluatedItems") if word in schema)
    return found


def _below(pointers: tuple[tuple[str, ...], ...], token: str) -> tuple[tuple[str, ...], ...]:
    # `*` and `-` stand for every element: who declares a place cannot know how long a list will be.
    return tuple(pointer[1:] for pointer in pointers if pointer and pointer[0] in (token, "*", "-"))


def _tokens(pointer: str) -> list[str]:
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def _marked_anywhere(schema: Any) -> bool:
    if isinstance(schema, dict):
        return MARK in schema or any(_marked_anywhere(part) for part in schema.values())
    return isinstance(schema, list) and any(_marked_anywhere(part) for part in schema)
