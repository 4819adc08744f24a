"""Makes arguments that an input schema admits, for advice about examples. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from libs.common.json.jsonio import JsonValue
from libs.common.json.schema_shape import Schema, SchemaShape
from services.registry.domain.compatibility.schema_diff import close_schema
from services.registry.domain.ports import SchemaChecker

_DEEPEST = 12
# A recursive schema may ask for any number of values.
_MOST_VALUES = 500
_LONGEST = 200
# Beyond it JSON numbers have no exact integers.
_GREATEST_EXACT = 2**53
_FORMATS = {
    "date-time": "2026-01-01T12:00:00Z",
    "date": "2026-01-01",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "uri": "https://example.com/a",
    "uri-reference": "https://example.com/a",
    "email": "a@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uuid": "0190a1df-0000-7000-8000-000000000001",
}
_TEXTS = ("text", "a", "A", "1", "a1", "abc", "ABC", "a-1", "a_1", "a.b", "a/b", "/a", "0.1", "2026-01-01", "#aabbcc")


def sample_arguments(schema: Any, checker: SchemaChecker) -> dict[str, JsonValue] | None:
    """Return few arguments that an admissible schema takes; None if none are found."""
    if not isinstance(schema, dict) or checker.schema_findings(schema):
        return None
    arguments = _Sampler(SchemaShape(schema), checker).value(schema, 0)
    if not isinstance(arguments, dict) or checker.value_findings(close_schema(schema), arguments):
        return None
    return arguments


class _Sampler:
    """Makes a value of each subschema; a value that the schema refuses is found out afterwards."""

    def __init__(self, shape: SchemaShape, checker: SchemaChecker) -> None:
        self._shape, self._checker, self._made = shape, checker, 0

    def value(self, schema: Any, depth: int) -> Any:
        self._made += 1
        if not isinstance(schema, Mapping) or depth > _DEEPEST or self._made > _MOST_VALUES:
            return None
        for keyword in ("enum", "examples"):
            if isinstance(schema.get(keyword), list) and schema[keyword]:
                return schema[keyword][0]
        for keyword in ("const", "default"):
            if keyword in schema:
                return schema[keyword]
        parts = [self.value(part, depth + 1) for part in self._parts(schema)]
        own = self._of_type(schema, depth)
        objects = [each for each in (*parts, own) if isinstance(each, dict)]
        if objects:
            return {name: value for each in objects for name, value in each.items()}
        return parts[0] if parts and "type" not in schema else own

    def _parts(self, schema: Schema) -> list[Any]:
        """Return the subschemas that a value of the schema meets besides: one of those of which one is enough."""
        parts = list(schema.get("allOf", ()))
        parts += [schema[keyword][0] for keyword in ("anyOf", "oneOf") if schema.get(keyword)]
        target = self._shape.target(schema["$ref"]) if isinstance(schema.get("$ref"), str) else None
        return parts + ([target] if target is not None else [])

    def _of_type(self, schema: Schema, depth: int) -> Any:
        kinds = schema.get("type", "object" if "properties" in schema else "")
        kind = next((each for each in kinds if each != "null"), "null") if isinstance(kinds, list) else kinds
        if kind == "object":
            properties = schema.get("properties", {})
            return {name: self.value(properties.get(name, {}), depth + 1) for name in schema.get("required", ())}
        if kind == "array":
            first = [self.value(each, depth + 1) for each in schema.get("prefixItems", ())]
            missing = _count(schema, "minItems", 0) - len(first)
            return first + [self.value(schema.get("items", {}), depth + 1) for _ in range(missing)]
        if kind in ("integer", "number"):
            return _number(schema)
        return {"boolean": True, "null": None}.get(kind) if kind in ("boolean", "null") else self._text(schema)

    def _text(self, schema: Schema) -> str:
        least, most = _count(schema, "minLength", 0), _count(schema, "maxLength", _LONGEST)
        texts = [_FORMATS[schema["format"]]] if schema.get("format") in _FORMATS else []
        texts += [each[:most].ljust(least, each[-1]) for each in _TEXTS]
        # The pattern is of the author: the checker alone evaluates it, in linear time.
        unfit = (
            {each.pointer for each in self._checker.value_findings({"items": {"pattern": schema["pattern"]}}, [*texts])}
            if "pattern" in schema
            else set()
        )
        return next((each for index, each in enumerate(texts) if f"/{index}" not in unfit), texts[0])


def _count(schema: Schema, keyword: str, default: int) -> int:
    """Return a bounded number of characters or items, which JSON may write as 2.0 or 1e20."""
    return int(min(schema.get(keyword, default), _LONGEST))


def _number(schema: Schema) -> int | float | None:
    step = schema.get("multipleOf", 1)
    lowest: int | float = schema.get("minimum", 0)
    if "exclusiveMinimum" in schema:
        lowest = max(lowest, schema["exclusiveMinimum"] + step)
    number = lowest if lowest else min(step, schema.get("maximum", step))
    if not math.isfinite(number):
        return None
    return int(number) if abs(number) < _GREATEST_EXACT and number == int(number) else number
