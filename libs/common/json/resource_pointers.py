"""Finds the resources that a payload names: `<kind>:<value>` wherever its JSON Schema has `x-resource: "<kind>"`. Pure.

The mark holds for every string and number below it. A part of the schema that cannot be followed marks resources of
kind `unknown`, so that a token confined to resources is refused rather than believed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from libs.common.json.schema_walk import Schemas, SchemaWalk, has_keyword

MARK = "x-resource"
UNKNOWN = "unknown"


class ResourcePointers:
    """Finds the resources in payloads of one schema."""

    __slots__ = ("_walk",)

    def __init__(self, schema: dict[str, Any]) -> None:
        self._walk = SchemaWalk(schema, fallback={MARK: UNKNOWN})

    @classmethod
    def of(cls, schema: dict[str, Any]) -> ResourcePointers | None:
        """Return the finder of a schema, or None when it marks nothing."""
        return cls(schema) if has_keyword(schema, MARK) else None

    def __call__(self, payload: Any) -> tuple[str, ...]:
        """Return every resource that the payload names, each once, in its order."""
        return tuple(dict.fromkeys(self._resources(payload, self._walk.root(), ())))

    def _resources(self, value: Any, schemas: Schemas, outer: tuple[str, ...]) -> Iterator[str]:
        kinds = tuple(dict.fromkeys((*outer, *(_kind(schema[MARK]) for schema in schemas if MARK in schema))))
        if isinstance(value, dict):
            for key, member in value.items():
                yield from self._resources(member, self._walk.member(schemas, key), kinds)
        elif isinstance(value, list):
            for index, element in enumerate(value):
                yield from self._resources(element, self._walk.element(schemas, index), kinds)
        elif value is not None and not isinstance(value, bool):
            yield from (f"{kind}:{value}" for kind in kinds)


def _kind(mark: Any) -> str:
    return mark if isinstance(mark, str) and mark else UNKNOWN
