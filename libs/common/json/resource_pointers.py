"""The resources that a payload names: wherever its JSON Schema says `x-resource: "<kind>"`, as `<kind>:<value>`. Pure.

The mark holds for every text and number below its place. Whoever cannot follow a schema takes what it covers for a resource
of kind `unknown`: a token that is confined to resources is then refused rather than believed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

MARK = "x-resource"
UNKNOWN = "unknown"
_BESIDE = ("allOf", "anyOf", "oneOf")
_SINGLE_BESIDE = ("if", "then", "else", "not")
# More schemas than this about one place are nobody's honest contract.
_MAX_SCHEMAS = 256

Schemas = tuple[dict[str, Any], ...]


class ResourcePointers:
    """Finds the resources in payloads of one schema."""

    __slots__ = ("_schema",)

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema

    @classmethod
    def of(cls, schema: dict[str, Any]) -> ResourcePointers | None:
        """Return the places of a schema, or None when it marks none."""
        return cls(schema) if _marked_anywhere(schema) else None

    def __call__(self, payload: Any) -> tuple[str, ...]:
        """Return every resource that the payload names, each once, in its order."""
        return tuple(dict.fromkeys(self._named(payload, self._applicable([self._schema]), ())))

    def _named(self, value: Any, schemas: Schemas, outer: tuple[str, ...]) -> Iterator[str]:
        kinds = tuple(dict.fromkeys((*outer, *(_kind(schema[MARK]) for schema in schemas if MARK in schema))))
        if isinstance(value, dict):
            for key, member in value.items():
                yield from self._named(member, self._applicable(_below_key(schemas, key)), kinds)
        elif isinstance(value, list):
            for index, element in enumerate(value):
                yield from self._named(element, self._applicable(_below_index(schemas, index)), kinds)
        elif value is not None and not isinstance(value, bool):
            yield from (f"{kind}:{value}" for kind in kinds)

    def _applicable(self, schemas: Sequence[Any]) -> Schemas:
        """Every schema that may speak about the same place, followed through references and combinations."""
        waiting, found = list(schemas), []
        while waiting:
            present = waiting.pop()
            if not isinstance(present, dict):
                continue
            found.append(present)
            if len(found) > _MAX_SCHEMAS:
                return ({MARK: UNKNOWN},)
            waiting.extend(self._beside(present))
        return tuple(found)

    def _beside(self, schema: dict[str, Any]) -> Iterator[Any]:
        for keyword in _BESIDE:
            yield from schema.get(keyword, ())
        yield from (schema[keyword] for keyword in _SINGLE_BESIDE if keyword in schema)
        yield from schema.get("dependentSchemas", {}).values()
        yield from (self._referenced(schema[keyword]) for keyword in ("$ref", "$dynamicRef") if keyword in schema)

    def _referenced(self, reference: str) -> Any:
        """Resolve `#` and `#/...`; no other form of reference is followed."""
        if reference != "#" and not reference.startswith("#/"):
            return {MARK: UNKNOWN}
        found: Any = self._schema
        for token in reference.split("/")[1:]:
            name = token.replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(name)] if isinstance(found, list) else found[name]
            except (KeyError, IndexError, ValueError, TypeError):
                return {MARK: UNKNOWN}
        return found


def _kind(mark: Any) -> str:
    return mark if isinstance(mark, str) and mark else UNKNOWN


def _below_key(schemas: Schemas, key: str) -> list[Any]:
    found: list[Any] = []
    for schema in schemas:
        if key in schema.get("properties", {}):
            found.append(schema["properties"][key])
        # Whether a pattern matches is not worth a second regular expression engine: it is taken to match.
        found.extend(schema.get("patternProperties", {}).values())
        found.extend(schema[word] for word in ("additionalProperties", "unevaluatedProperties") if word in schema)
    return found


def _below_index(schemas: Schemas, index: int) -> list[Any]:
    found: list[Any] = []
    for schema in schemas:
        found.extend(schema.get("prefixItems", ())[index : index + 1])
        found.extend(schema[word] for word in ("items", "contains", "unevaluatedItems") if word in schema)
    return found


def _marked_anywhere(schema: Any) -> bool:
    if isinstance(schema, dict):
        return MARK in schema or any(_marked_anywhere(part) for part in schema.values())
    return isinstance(schema, list) and any(_marked_anywhere(part) for part in schema)
