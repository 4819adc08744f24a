"""Copies the schemas of one operation, with everything that they refer to, as JSON Schema 2020-12. Pure.

References stay references, to `#/$defs`, so a schema that many others use is copied once and recursion ends.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

from services.executor.domain.openapi.references import OperationProblemError, find

MAX_SCHEMAS, MAX_DEPTH = 10_000, 48
_MAPS = ("properties", "patternProperties", "dependentSchemas")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLE = (
    "items",
    "additionalProperties",
    "not",
    "if",
    "then",
    "else",
    "contains",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_COPIED = (
    "type",
    "enum",
    "const",
    "format",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minContains",
    "maxContains",
    "minProperties",
    "maxProperties",
    "required",
    "dependentRequired",
)
_DESCRIBING = ("title", "description", "default", "deprecated")
# What services answer is often looser than their documents; a result that breaks one of these is still usable.
_NOT_FOR_RESULTS = frozenset({"format", "pattern"})


class Direction(StrEnum):
    """Which way the described values travel."""

    REQUEST = "request"
    RESULT = "result"


class SchemaBundle:
    """The schemas of one direction of one operation, and the `$defs` that they share."""

    def __init__(self, document: dict[str, Any], direction: Direction) -> None:
        self._document, self._direction = document, direction
        self._nullable = str(document.get("openapi", "")).startswith("3.0")
        self._names: dict[str, str] = {}
        self._left = MAX_SCHEMAS
        self.definitions: dict[str, Any] = {}

    def add(self, schema: Any) -> dict[str, Any]:
        """Return a schema whose references are among `definitions`. Raises OperationProblemError."""
        return self._copy(schema, 0)

    def _copy(self, schema: Any, depth: int) -> dict[str, Any]:
        if schema is True:
            return {}
        if schema is False:
            return {"not": {}}
        self._left -= 1
        if self._left < 0 or depth > MAX_DEPTH:
            limits = f"{MAX_SCHEMAS} schemas or {MAX_DEPTH} levels"
            raise OperationProblemError(f"needs more than {limits} in its {self._direction}")
        if not isinstance(schema, dict):
            raise OperationProblemError("has a schema that is not an object")
        if isinstance(schema.get("$ref"), str):
            return self._copy_reference(schema, depth)
        copied = self._copy_keywords(schema, depth)
        return _with_null(copied) if self._nullable and schema.get("nullable") is True else copied

    def _copy_reference(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        name = self._definition(schema["$ref"])
        # OpenAPI 3.0 ignores what stands beside a reference.
        siblings = {} if self._nullable else {key: value for key, value in schema.items() if key != "$ref"}
        return {"$ref": f"#/$defs/{name}", **(self._copy(siblings, depth) if siblings else {})}

    def _definition(self, reference: str) -> str:
        if reference not in self._names:
            name = re.sub(r"[^A-Za-z0-9_.-]", "_", reference.rpartition("/")[2]) or "schema"
            while name in self.definitions:
                name += "_"
            self._names[reference] = name
            # Entered before it is copied, because it may refer to itself.
            self.definitions[name] = {}
            self.definitions[name] = self._copy(find(self._document, reference), 0)
        return self._names[reference]

    def _copy_keywords(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        kept = _COPIED + (_DESCRIBING if self._direction is Direction.REQUEST else ())
        copied = {key: schema[key] for key in kept if key in schema}
        if self._direction is Direction.RESULT:
            copied = {key: value for key, value in copied.items() if key not in _NOT_FOR_RESULTS}
        if self._nullable:
            _translate_bounds(copied)
        for key in _MAPS:
            if isinstance(schema.get(key), dict):
                copied[key] = {name: self._copy(part, depth + 1) for name, part in schema[key].items()}
        for key in _LISTS:
            if isinstance(schema.get(key), list) and schema[key]:
                copied[key] = [self._copy(part, depth + 1) for part in schema[key]]
        for key in _SINGLE:
            if isinstance(schema.get(key), dict):
                copied[key] = self._copy(schema[key], depth + 1)
            elif isinstance(schema.get(key), bool):
                copied[key] = schema[key]
        self._leave_out_other_direction(schema, copied)
        return copied

    def _leave_out_other_direction(self, schema: dict[str, Any], copied: dict[str, Any]) -> None:
        """A request does not carry what only the service sets, and a result not what only callers send."""
        if not isinstance(schema.get("properties"), dict):
            return
        keyword = "readOnly" if self._direction is Direction.REQUEST else "writeOnly"
        absent = {
            name for name, part in schema["properties"].items() if isinstance(part, dict) and part.get(keyword) is True
        }
        for name in absent:
            del copied["properties"][name]
        if absent and isinstance(copied.get("required"), list):
            copied["required"] = [name for name in copied["required"] if name not in absent]


def _translate_bounds(schema: dict[str, Any]) -> None:
    """Translate the exclusive bounds of OpenAPI 3.0, which are flags there."""
    for flag, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(schema.get(flag), bool):
            exclusive = schema.pop(flag)
            if exclusive and bound in schema:
                schema[flag] = schema.pop(bound)


def _with_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Allow null too."""
    if not isinstance(schema.get("type"), str):
        return {"anyOf": [schema, {"type": "null"}]}
    nullable = {**schema, "type": [schema["type"], "null"]}
    if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
        nullable["enum"] = [*schema["enum"], None]
    return nullable
