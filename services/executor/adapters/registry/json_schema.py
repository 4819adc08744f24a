"""JSON Schema 2020-12, compiled once: nothing is fetched, formats are checked, and no message repeats a value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jsonschema_rs

from libs.common.errors import Violation
from libs.common.json.json_pointer import steps_of
from libs.common.json.jsonio import parse
from libs.common.json.resource_pointers import ResourcePointers
from libs.common.redaction.declared import Declared
from services.executor.domain.tool import Contract, Default

# Enough to repair a call; a caller that breaks more rules than this will come back anyway.
_MAX_VIOLATIONS = 100
# All that is wrong is found and written out before the first of it is seen. For more parts than this that would hold up everybody else.
MANY_PARTS = 10_000
# The words of a schema that lead to defaults, and how many references are followed one after the other.
_SAYING = ("default", "properties", "items", "prefixItems")
_MAX_REFERENCES = 8


class SchemaError(Exception):
    """A manifest whose schema cannot be compiled, so its tool cannot be called."""


def input_contract(schema: bytes, sensitive: Sequence[str]) -> Contract:
    """Return the contract of arguments. An argument that the schema does not declare breaks it, said or unsaid."""
    parsed = _parsed(schema)
    return Contract(_checker(_closed(parsed)), Declared.of(parsed, sensitive))


def output_contract(schema: bytes, sensitive: Sequence[str]) -> Contract:
    """Return the contract of results, exactly as its schema says."""
    parsed = _parsed(schema)
    return Contract(_checker(parsed), Declared.of(parsed, sensitive))


def defaults_of(schema: bytes) -> tuple[Default, ...]:
    """Return the defaults that the schema names for arguments at its top level."""
    root = _parsed(schema)
    parts = {name: followed(root, part) for name, part in followed(root, root).get("properties", {}).items()}
    return tuple(Default(name, _pointer([name]), part["default"]) for name, part in parts.items() if "default" in part)


def followed(root: dict[str, Any], schema: Any) -> dict[str, Any]:
    """Return what a schema says about defaults, with what it refers to; words beside a reference come first."""
    said: dict[str, Any] = {}
    for _ in range(_MAX_REFERENCES):
        if not isinstance(schema, dict):
            break
        said = {**{word: schema[word] for word in _SAYING if word in schema}, **said}
        if not str(schema.get("$ref", "")).startswith("#/"):
            break
        found: Any = root
        for step in steps_of(schema["$ref"][1:]):
            found = found.get(step) if isinstance(found, dict) else None
        schema = found
    return said


def resources_of(schema: bytes) -> ResourcePointers | None:
    """Return what finds the resources that arguments name; None when the schema marks none."""
    return ResourcePointers.of(_parsed(schema))


def _parsed(schema: bytes) -> dict[str, Any]:
    parsed = parse(schema)
    if not isinstance(parsed, dict):
        raise SchemaError("the schema is not an object")
    return parsed


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Refuse what is undeclared. A schema for further properties declares them; a bare `true` declares nothing."""
    closed = {key: value for key, value in schema.items() if key != "additionalProperties" or value not in (True, {})}
    closed.setdefault("unevaluatedProperties", False)
    return closed


def _checker(schema: dict[str, Any]) -> Any:
    try:
        # Always this draft, whatever `$schema` claims: an older one would ignore the keyword that closes the schema.
        validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True, offline=True, mask="the value")
    except ValueError as error:
        raise SchemaError(str(error)[:300]) from None

    def violations(value: Any) -> Sequence[Violation]:
        try:
            if validator.is_valid(value):
                return ()
        except ValueError:
            # A tool inside the process may return anything: what is no JSON satisfies no schema.
            return (Violation("", "json", "has no JSON form"),)
        found: list[Violation] = []
        for error in _first(validator, value) if has_many_parts(value) else validator.iter_errors(value):
            found.extend(_violations(error))
            if len(found) >= _MAX_VIOLATIONS:
                break
        return found[:_MAX_VIOLATIONS]

    return violations


def has_many_parts(value: Any) -> bool:
    """Say whether a value has so many parts that nobody can be told of everything that is wrong with it."""
    waiting, left = [value], MANY_PARTS
    while waiting:
        present = waiting.pop()
        parts = present.values() if isinstance(present, dict) else present if isinstance(present, list) else ()
        left -= len(parts)
        if left < 0:
            return True
        waiting.extend(part for part in parts if isinstance(part, dict | list))
    return False


def _first(validator: Any, value: Any) -> Iterator[jsonschema_rs.ValidationError]:
    """Yield the first thing that is wrong, and look for no other."""
    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        yield error


def _violations(error: jsonschema_rs.ValidationError) -> Iterable[Violation]:
    kind, path = error.kind, error.instance_path
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Required):
        return [Violation(_pointer([*path, kind.property]), "required", "is required")]
    if isinstance(
        kind,
        jsonschema_rs.ValidationErrorKind.UnevaluatedProperties
        | jsonschema_rs.ValidationErrorKind.AdditionalProperties,
    ):
        return [
            Violation(_pointer([*path, name]), kind.name, "is not declared")
            for name in kind.unexpected[:_MAX_VIOLATIONS]
        ]
    return [Violation(_pointer(path), kind.name, error.message[:300])]


def _pointer(path: Iterable[str | int]) -> str:
    return "".join("/" + str(token).replace("~", "~0").replace("/", "~1") for token in path)
