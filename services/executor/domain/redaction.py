"""Removes what is sensitive before anything is shown. When in doubt, it removes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

REDACTED = "[redacted]"
MARK = "x-sensitivity"
_BESIDE = ("allOf", "anyOf", "oneOf")
_SINGLE_BESIDE = ("if", "then", "else", "not")
# More schemas than this about one place are nobody's honest contract.
_MAX_SCHEMAS = 256


class Redactor:
    """Knows the sensitive places of one payload: those its manifest points at and those its schema marks."""

    __slots__ = ("_pointers", "_schema")

    def __init__(self, schema: Any, pointers: Sequence[str]) -> None:
        self._pointers = tuple(tuple(_tokens(pointer)) for pointer in pointers)
        self._schema = schema if _marked_anywhere(schema) else True

    @classmethod
    def of(cls, schema: Any, pointers: Sequence[str]) -> Redactor | None:
        """Return the redactor of a payload, or None when nothing in it is sensitive."""
        return cls(schema, pointers) if pointers or _marked_anywhere(schema) else None

    def redact(self, value: Any) -> Any:
        """Return the value with every sensitive part replaced; the value itself is left alone."""
        return self._visit(value, [self._schema], self._pointers)

    def _visit(self, value: Any, schemas: list[Any], pointers: tuple[tuple[str, ...], ...]) -> Any:
        applicable = [found for schema in schemas for found in self._applicable(schema)]
        if any(not pointer for pointer in pointers) or any(MARK in schema for schema in applicable):
            return REDACTED
        if isinstance(value, dict):
            return {
                key: self._visit(item, _below_key(applicable, key), _below(pointers, key))
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [
                self._visit(item, _below_index(applicable, index), _below(pointers, str(index)))
                for index, item in enumerate(value)
            ]
        return value

    def _applicable(self, schema: Any) -> Iterator[dict[str, Any]]:
        """Every schema that may speak about the same place, followed through references and combinations."""
        waiting, seen = [schema], 0
        while waiting:
            present = waiting.pop()
            if not isinstance(present, dict):
                continue
            seen += 1
            if seen > _MAX_SCHEMAS:
                yield {MARK: True}
                return
            yield present
            waiting.extend(self._beside(present))

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


def _below_key(schemas: list[dict[str, Any]], key: str) -> list[Any]:
    found: list[Any] = []
    for schema in schemas:
        if key in schema.get("properties", {}):
            found.append(schema["properties"][key])
        # Whether a pattern matches is not worth a second regular expression engine: it is taken to match.
        found.extend(schema.get("patternProperties", {}).values())
        found.extend(schema[word] for word in ("additionalProperties", "unevaluatedProperties") if word in schema)
    return found


def _below_index(schemas: list[dict[str, Any]], index: int) -> list[Any]:
    found: list[Any] = []
    for schema in schemas:
        found.extend(schema.get("prefixItems", ())[index : index + 1])
        found.extend(schema[word] for word in ("items", "contains", "unevaluatedItems") if word in schema)
    return found


def _below(pointers: tuple[tuple[str, ...], ...], token: str) -> tuple[tuple[str, ...], ...]:
    # `*` and `-` stand for every element: a manifest cannot know how long a list will be.
    return tuple(rest for head, *tail in pointers for rest in [tuple(tail)] if head in (token, "*", "-"))


def _tokens(pointer: str) -> list[str]:
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def _marked_anywhere(schema: Any) -> bool:
    if isinstance(schema, dict):
        return MARK in schema or any(_marked_anywhere(part) for part in schema.values())
    return isinstance(schema, list) and any(_marked_anywhere(part) for part in schema)
