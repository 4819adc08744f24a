"""Compiles JSON Schema 2020-12 validators: offline, with format checks, and without values in messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jsonschema_rs

from libs.common.errors import Violation
from libs.common.json.bounded_validator import SchemaCompilationError, compile_bounded
from libs.common.json.json_pointer import pointer_of, steps_of
from libs.common.json.jsonio import parse
from libs.common.json.resource_pointers import ResourcePointers
from libs.common.json.schema_guard import TOOL_LIMITS
from libs.common.redaction.declared import Declared
from services.executor.adapters.registry.schema_cost import cost_of
from services.executor.domain.tool import Contract, Default
from services.executor.domain.validation_cost import MAX_UNITS, ValidationCost, size_of_value

# Enough to repair a call.
_MAX_VIOLATIONS = 100
# The validator collects all errors before it returns the first. Beyond this much work only the first is named.
_ALL_ERRORS_UNITS = 200_000
# A value with more parts is not coerced.
MANY_PARTS = 10_000
# The keywords that lead to defaults, and the longest chain of references.
_DEFAULT_KEYWORDS = ("default", "properties", "items", "prefixItems")
_MAX_REFERENCES = 8


class SchemaError(Exception):
    """The schema cannot be compiled, so its tool cannot be called."""


def input_contract(schema: bytes, sensitive: Sequence[str]) -> Contract:
    """Return the contract of arguments. Undeclared arguments violate it, even if the schema allows them."""
    parsed = _parse_schema(schema)
    return _contract(_closed(parsed), Declared.of(parsed, sensitive))


def output_contract(schema: bytes, sensitive: Sequence[str]) -> Contract:
    """Return the contract of results, exactly as in its schema."""
    parsed = _parse_schema(schema)
    return _contract(parsed, Declared.of(parsed, sensitive))


def defaults_of(schema: bytes) -> tuple[Default, ...]:
    """Return the defaults of top-level arguments."""
    root = _parse_schema(schema)
    parts = {name: resolve_refs(root, part) for name, part in resolve_refs(root, root).get("properties", {}).items()}
    return tuple(
        Default(name, pointer_of([name]), part["default"]) for name, part in parts.items() if "default" in part
    )


def resolve_refs(root: dict[str, Any], schema: Any) -> dict[str, Any]:
    """Return the keywords about defaults of a schema and its references.

    Keywords beside a reference take precedence.
    """
    resolved: dict[str, Any] = {}
    for _ in range(_MAX_REFERENCES):
        if not isinstance(schema, dict):
            break
        resolved = {**{keyword: schema[keyword] for keyword in _DEFAULT_KEYWORDS if keyword in schema}, **resolved}
        if not str(schema.get("$ref", "")).startswith("#/"):
            break
        target: Any = root
        for step in steps_of(schema["$ref"][1:]):
            target = target.get(step) if isinstance(target, dict) else None
        schema = target
    return resolved


def resources_of(schema: bytes) -> ResourcePointers | None:
    """Return the extractor of the resources in arguments; None if the schema marks none."""
    return ResourcePointers.of(_parse_schema(schema))


def _parse_schema(schema: bytes) -> dict[str, Any]:
    parsed = parse(schema)
    if not isinstance(parsed, dict):
        raise SchemaError("the schema is not an object")
    return parsed


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Refuse undeclared properties. A schema in `additionalProperties` declares them; a bare `true` does not."""
    closed = {key: value for key, value in schema.items() if key != "additionalProperties" or value not in (True, {})}
    closed.setdefault("unevaluatedProperties", False)
    return closed


def _contract(schema: dict[str, Any], declared: Declared | None) -> Contract:
    cost = cost_of(schema)
    return Contract(_checker(schema, cost), declared, cost)


def _checker(schema: dict[str, Any], cost: ValidationCost) -> Any:
    try:
        # Bounded again: the registry may have admitted it before a bound existed.
        validator = compile_bounded(schema, TOOL_LIMITS)
    except SchemaCompilationError as error:
        raise SchemaError(str(error)) from None

    def check(value: Any) -> Sequence[Violation]:
        units = cost.units(size_of_value(value))
        if units > MAX_UNITS:
            # Bounded before it begins, wherever the value comes from.
            return (Violation("", "validation_cost", "takes too long to validate against its schema; send less"),)
        try:
            if validator.is_valid(value):
                return ()
        except ValueError:
            # A built-in tool may return a value that is not JSON.
            return (Violation("", "json", "has no JSON form"),)
        violations: list[Violation] = []
        only_first = units > _ALL_ERRORS_UNITS or has_many_parts(value)
        for error in _first_error(validator, value) if only_first else validator.iter_errors(value):
            violations.extend(_violations(error))
            if len(violations) >= _MAX_VIOLATIONS:
                break
        return violations[:_MAX_VIOLATIONS]

    return check


def has_many_parts(value: Any) -> bool:
    """Return whether a value is too large to collect all of its errors."""
    waiting, left = [value], MANY_PARTS
    while waiting:
        present = waiting.pop()
        parts = present.values() if isinstance(present, dict) else present if isinstance(present, list) else ()
        left -= len(parts)
        if left < 0:
            return True
        waiting.extend(part for part in parts if isinstance(part, dict | list))
    return False


def _first_error(validator: Any, value: Any) -> Iterator[jsonschema_rs.ValidationError]:
    """Yield only the first error."""
    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        yield error


def _violations(error: jsonschema_rs.ValidationError) -> Iterable[Violation]:
    kind, path = error.kind, error.instance_path
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Required):
        return [Violation(pointer_of([*path, kind.property]), "required", "is required")]
    if isinstance(
        kind,
        jsonschema_rs.ValidationErrorKind.UnevaluatedProperties
        | jsonschema_rs.ValidationErrorKind.AdditionalProperties,
    ):
        return [
            Violation(pointer_of([*path, name]), kind.name, "is not declared")
            for name in kind.unexpected[:_MAX_VIOLATIONS]
        ]
    return [Violation(pointer_of(path), kind.name, error.message[:300])]
