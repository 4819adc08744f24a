"""The difference of two schemas, each way proven or not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from services.registry.domain.compatibility.budget import Budget, OverBudgetError
from services.registry.domain.compatibility.containment import containment_gaps
from services.registry.domain.compatibility.differences import (
    UNSHOWN,
    ChangeKind,
    Difference,
    Side,
    additive,
    breaking,
)
from services.registry.domain.compatibility.gaps import Gap
from services.registry.domain.ports import SchemaChecker
from services.registry.domain.schema_shape import Schema, SchemaShape, escape

_MOST_FIELDS = 2_000
_DEEPEST_FIELD = 8


@dataclass
class SchemaDiff:
    """Compares schemas within bounded work: one budget for what may break, another for what is only told."""

    checker: SchemaChecker
    breaking_budget: Budget = field(default_factory=Budget)
    additive_budget: Budget = field(default_factory=lambda: Budget(4_000))

    def differences(self, path: str, side: Side, old: Schema, new: Schema) -> Iterator[Difference]:
        """Yield what breaks, and what is added: input may only accept more, output may only promise more."""
        narrower, wider = (old, new) if side is Side.INPUT else (new, old)
        yield from self._breaking(path, side, narrower, wider)
        if side is Side.OUTPUT:
            yield from removed_fields(path, old, new)
        yield from self._additive(path, side, narrower, wider)
        yield from changed_defaults(path, old, new)

    def gaps(self, narrower: Schema, wider: Schema) -> tuple[Gap, ...]:
        """Return where the proof stops that whatever one schema accepts the other does; raise OverBudgetError."""
        return containment_gaps(self.checker, self.breaking_budget, narrower, wider)

    def _breaking(self, path: str, side: Side, narrower: Schema, wider: Schema) -> Iterator[Difference]:
        try:
            for gap in self.gaps(narrower, wider):
                yield breaking(side, path, gap)
        except OverBudgetError:
            words = f"{UNSHOWN} within bounded work"
            yield Difference(path, "budget", ChangeKind.BREAKING, words)

    def _additive(self, path: str, side: Side, narrower: Schema, wider: Schema) -> Iterator[Difference]:
        try:
            for gap in containment_gaps(self.checker, self.additive_budget, wider, narrower):
                yield additive(side, path, gap)
        except OverBudgetError:
            yield Difference(path, "budget", ChangeKind.ADDITIVE, "may mean more than before")


def removed_fields(path: str, old: Schema, new: Schema) -> Iterator[Difference]:
    """Yield fields that results declared and do not any more: who reads one finds nothing, though no schema is broken."""
    shape, gone = SchemaShape(new), set[str]()
    for pointer in declared(SchemaShape(old)):
        parent = pointer.rpartition("/")[0]
        if parent in gone:
            gone.add(pointer)
        elif not shape.declares(pointer):
            gone.add(pointer)
            yield Difference(f"{path}#{pointer}", "removed", ChangeKind.BREAKING, "the field is not declared any more")


def declared(shape: SchemaShape) -> Iterator[str]:
    """Yield the JSON Pointers of values that a schema declares, parents first; `-` stands for every item of an array."""
    level: list[tuple[str, Schema]] = [("", shape.root)]
    told = set[str]()
    for _ in range(_DEEPEST_FIELD):
        below: list[tuple[str, Schema]] = []
        for pointer, schema in level:
            for part in shape.in_place(schema):
                below.extend(_fields(pointer, part))
        level = [(pointer, schema) for pointer, schema in below if pointer not in told][:_MOST_FIELDS]
        for pointer, _schema in level:
            if pointer not in told:
                told.add(pointer)
                yield pointer
        if len(told) >= _MOST_FIELDS:
            return


def _fields(pointer: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    properties = schema.get("properties")
    for name, child in (properties if isinstance(properties, dict) else {}).items():
        if isinstance(child, dict) or child is True:
            yield f"{pointer}/{escape(name)}", child if isinstance(child, dict) else {}
    if isinstance(schema.get("items"), dict):
        yield f"{pointer}/-", schema["items"]


def changed_defaults(path: str, old: Schema, new: Schema) -> Iterator[Difference]:
    """Yield defaults that are not what they were: nothing is refused, and what happens may differ."""
    before, after = _defaults(old), _defaults(new)
    for pointer in sorted(before.keys() & after.keys()):
        if before[pointer] != after[pointer]:
            yield Difference(f"{path}#{pointer}", "default", ChangeKind.ADDITIVE, "the default is another one")


def _defaults(schema: Schema) -> dict[str, Any]:
    return {pointer: part["default"] for pointer, part in SchemaShape(schema).places.items() if "default" in part}


def closed(schema: Schema) -> Schema:
    """Return an input schema as calls are checked: what is undeclared is refused, whether or not the schema says so."""
    kept = {key: part for key, part in schema.items() if key != "additionalProperties" or part not in (True, {})}
    return {"unevaluatedProperties": False, **kept}


def with_defaults_filled(schema: Schema, checker: SchemaChecker) -> Schema:
    """Return an input schema that asks only for what a caller has to send, where the mesh fills in valid defaults."""
    properties = schema.get("properties", {})
    filled = {
        name
        for name, part in properties.items()
        if isinstance(part, dict)
        and "default" in part
        and not checker.value_findings(_alone(schema, name), part["default"])
    }
    required = [name for name in schema.get("required", ()) if name not in filled]
    return {**schema, "required": required}


def _alone(schema: Schema, name: str) -> dict[str, Any]:
    definitions = {word: schema[word] for word in ("$defs", "definitions") if word in schema}
    return {**schema["properties"][name], **definitions}
