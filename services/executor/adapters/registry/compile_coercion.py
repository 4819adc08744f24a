"""Coerces arguments to the types of their schema, where the conversion is exact and unambiguous.

The validator's errors drive the coercion, so JSON Schema is not interpreted a second time here. A value is changed only
where its type violates its schema. Where several schemas may apply (`anyOf`, `oneOf`), it is changed if exactly one
conversion satisfies them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jsonschema_rs

from libs.common.errors import Violation
from libs.common.json.bounded_validator import compile_linear
from libs.common.json.canonical import canonical
from libs.common.json.json_pointer import pointer_of
from libs.common.json.jsonio import MAX_DEPTH, parse_object
from services.executor.adapters.registry.json_schema import has_many_parts
from services.executor.adapters.registry.schema_cost import cost_of
from services.executor.domain.argument_spec import Change, CoercionResult
from services.executor.domain.arguments.coerce import Unread, reading
from services.executor.domain.arguments.prepare import COERCION
from services.executor.domain.validation_cost import ValidationCost, size_of_value

_ROOT = "urn:toolmesh:arguments"
_EXACT = "x-toolmesh-exact"
# Keywords whose value is not a schema.
_VALUE_KEYWORDS = frozenset({"const", "enum", "default", "examples", "required", "dependentRequired"})
# Keywords whose value maps names to schemas.
_MAP_KEYWORDS = frozenset({"properties", "patternProperties", "$defs", "dependentSchemas"})
# A string may contain JSON whose strings contain JSON.
_MAX_ROUNDS = 4
_MAX_BRANCHES = 16
_MAX_CHANGES = 1000
# Validation passes per call.
_MAX_PASSES = 100
# The work of one pass.
_MAX_UNITS = 200_000

Path = tuple[str | int, ...]


class Edit(NamedTuple):
    """The replacement of one value."""

    path: Path
    value: Any
    reason: str


class Coercer:
    """Coerces arguments of one schema. Reports every change and does not modify its input."""

    def __init__(self, schema: bytes) -> None:
        # Compiled on first use, because most calls match their schema.
        self._source = schema
        self._subschemas: dict[str, Any] = {}

    def coerce(self, arguments: dict[str, Any]) -> CoercionResult:
        """Return the coerced arguments, the changes, and the conversions that would lose information."""
        value, edits, losses = self._coerce_value(self._whole, arguments, (), _Budget(_MAX_PASSES))
        if len(edits) > _MAX_CHANGES:
            return CoercionResult(arguments)
        changes = tuple(Change(pointer_of(edit.path), COERCION, edit.reason) for edit in edits)
        return CoercionResult(value, changes, tuple(dict.fromkeys(losses)))

    @cached_property
    def _schema(self) -> dict[str, Any]:
        # Always draft 2020-12, and with an $id, so that its subschemas can be referenced.
        parsed = parse_object(self._source)
        named = {key: part for key, part in parsed.items() if key != "$schema"} | {"$id": _ROOT}
        marked: dict[str, Any] = mark_exact_integers(named)
        return marked

    @cached_property
    def _cost(self) -> ValidationCost:
        # A part of the arguments may be coerced on its own, so any depth may be the first.
        cost = cost_of(self._schema)
        return ValidationCost((max(cost.per_value),), (max(cost.per_byte),))

    @cached_property
    def _whole(self) -> Any:
        return self._compile(self._schema)

    def _coerce_value(
        self, validator: Any, value: Any, base: Path, budget: _Budget
    ) -> tuple[Any, list[Edit], list[Violation]]:
        """Coerce a value at the path `base` until nothing changes; return it with all edits and losses."""
        applied: dict[Path, Edit] = {}
        for _ in range(_MAX_ROUNDS):
            if not budget.take() or has_many_parts(value) or self._cost.units(size_of_value(value)) > _MAX_UNITS:
                break
            edits, losses = self._edits(validator.iter_errors(value), value, base, budget)
            if losses:
                return value, list(applied.values()), losses
            if not edits:
                break
            value = apply_edits(value, edits)
            applied |= {edit.path: edit._replace(path=(*base, *edit.path)) for edit in edits}
        return value, list(applied.values()), []

    def _edits(
        self, errors: Iterable[Any], value: Any, base: Path, budget: _Budget
    ) -> tuple[list[Edit], list[Violation]]:
        edits: list[Edit] = []
        losses: list[Violation] = []
        edited, ancestors = set[Path](), set[Path]()
        for error in errors:
            path = tuple(error.instance_path)
            prefixes = [path[:length] for length in range(len(path) + 1)]
            if path in ancestors or not edited.isdisjoint(prefixes):
                # Nested edits are left to the next round.
                continue
            if new_edits := self._edits_for(error, path, _value_at(value, path), base, losses, budget):
                edits += new_edits
                edited.add(path)
                ancestors.update(prefixes)
            if len(edits) > _MAX_CHANGES:
                break
        return edits, losses

    def _edits_for(
        self, error: Any, path: Path, present: Any, base: Path, losses: list[Violation], budget: _Budget
    ) -> Sequence[Edit]:
        kind = error.kind
        if isinstance(kind, jsonschema_rs.ValidationErrorKind.Type):
            return self._convert_type(kind.types, path, present, base, losses)
        if isinstance(kind, jsonschema_rs.ValidationErrorKind.Custom):
            return self._convert_type(["integer"], path, present, base, losses)
        if isinstance(kind, jsonschema_rs.ValidationErrorKind.AnyOf | jsonschema_rs.ValidationErrorKind.OneOfNotValid):
            return self._convert_choice(error, path, present, base, losses, budget)
        return ()

    def _convert_type(
        self, types: Sequence[str], path: Path, present: Any, base: Path, losses: list[Violation]
    ) -> Sequence[Edit]:
        max_depth = MAX_DEPTH - len(base) - len(path)
        readings = {declared: reading(present, declared, max_depth) for declared in sorted(types)}
        converted = {declared: value for declared, value in readings.items() if not isinstance(value, Unread)}
        if len({canonical(value) for value in converted.values()}) == 1:
            declared, value = next(iter(converted.items()))
            return [Edit(path, value, f"{_type_name(present)} to {declared}")]
        if Unread.LOSSY in readings.values() and not converted:
            lossy = " or ".join(declared for declared, value in readings.items() if value is Unread.LOSSY)
            losses.append(Violation(pointer_of((*base, *path)), "coercion", f"cannot become {lossy} without loss"))
        return ()

    def _convert_choice(
        self, error: Any, path: Path, present: Any, base: Path, losses: list[Violation], budget: _Budget
    ) -> Sequence[Edit]:
        """Return the edits of the only branch that the value can be converted to; none if it is ambiguous."""
        branches = [self._subschema([*error.schema_path, n]) for n in range(len(error.kind.context))][:_MAX_BRANCHES]
        readings: dict[bytes, list[Edit]] = {}
        branch_losses: list[Violation] = []
        for branch in branches:
            value, edits, lossy = self._coerce_value(branch, present, (*base, *path), budget)
            branch_losses += lossy
            if edits and not lossy and branch.is_valid(value) and self._satisfies(error, value):
                # Relative to `base`, which the caller adds again.
                readings.setdefault(canonical(value), [edit._replace(path=edit.path[len(base) :]) for edit in edits])
        if not readings:
            losses += branch_losses
        return next(iter(readings.values())) if len(readings) == 1 else ()

    def _satisfies(self, error: Any, value: Any) -> bool:
        """Return whether a value satisfies the whole keyword: `oneOf` requires exactly one valid branch."""
        keyword, count = error.schema_path[-1], len(error.kind.context)
        valid = sum(self._subschema([*error.schema_path, n]).is_valid(value) for n in range(count))
        return bool(valid == 1 if keyword == "oneOf" else valid)

    def _subschema(self, path: Sequence[str | int]) -> Any:
        pointer = pointer_of(path)
        if pointer not in self._subschemas:
            self._subschemas[pointer] = self._compile(
                {"$ref": f"{_ROOT}#{_uri_fragment(pointer)}", "$defs": {"arguments": self._schema}}
            )
        return self._subschemas[pointer]

    def _compile(self, schema: dict[str, Any]) -> Any:
        return compile_linear(schema, keywords={_EXACT: _ExactInteger})


class _ExactInteger:
    """Reports a float where an integer is declared.

    JSON Schema accepts `42.0`; a tool that expects an integer may not.
    """

    def __init__(self, parent: Any, value: Any, path: Any) -> None:
        """The arguments of the keyword are not used."""

    def validate(self, instance: Any) -> None:
        if type(instance) is float and not isinstance(reading(instance, "integer"), Unread):
            raise ValueError("not written as an integer")


class _Budget:
    """The remaining validation passes of one call."""

    def __init__(self, passes: int) -> None:
        self._left = passes

    def take(self) -> bool:
        self._left -= 1
        return self._left >= 0


def apply_edits(value: Any, edits: Iterable[Edit]) -> Any:
    """Apply edits in order, copying only the containers on their paths. No edit is an ancestor of an earlier one."""
    copied: dict[Path, Any] = {}

    def copy_at(path: Path) -> Any:
        if path not in copied:
            present = value if not path else copy_at(path[:-1])[path[-1]]
            container = dict(present) if isinstance(present, dict) else list(present)
            copied[path] = container
            if path:
                copied[path[:-1]][path[-1]] = container
        return copied[path]

    for edit in edits:
        if not edit.path:
            return edit.value
        copy_at(edit.path[:-1])[edit.path[-1]] = edit.value
    return copied.get((), value)


def _value_at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value


def _type_name(value: Any) -> str:
    return "string" if isinstance(value, str) else "number"


def _uri_fragment(pointer: str) -> str:
    safe = "/~-._abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    return "".join(char if char in safe else "".join(f"%{byte:02X}" for byte in char.encode()) for char in pointer)


def mark_exact_integers(schema: Any) -> Any:
    """Return a copy in which every integer schema has the keyword that rejects floats such as `42.0`."""
    if isinstance(schema, list):
        return [mark_exact_integers(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    copied: dict[str, Any] = {}
    for key, part in schema.items():
        if key in _MAP_KEYWORDS and isinstance(part, dict):
            copied[key] = {name: mark_exact_integers(child) for name, child in part.items()}
        else:
            copied[key] = part if key in _VALUE_KEYWORDS else mark_exact_integers(part)
    types = schema.get("type")
    if types == "integer" or (isinstance(types, list) and "integer" in types and "number" not in types):
        copied[_EXACT] = True
    return copied
