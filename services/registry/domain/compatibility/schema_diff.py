"""Computes the differences between two schemas in both directions."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from libs.common.json.json_pointer import pointer_of, steps_of
from libs.common.json.schema_shape import Schema, SchemaShape
from services.registry.domain.compatibility.differences import (
    UNPROVEN,
    ChangeKind,
    Difference,
    Side,
    describe_additive,
    describe_breaking,
)
from services.registry.domain.compatibility.proof.budget import Budget, OverBudgetError
from services.registry.domain.compatibility.proof.containment import containment_gaps
from services.registry.domain.compatibility.proof.unproven_keyword import UnprovenKeyword
from services.registry.domain.compatibility.proof.values import identity
from services.registry.domain.ports import SchemaChecker

_MOST_FIELDS = 2_000
# A recursive schema declares fields without end, and each level may hold thousands.
_MOST_LOOKED_AT = 50_000
_DEEPEST_FIELD = 8
_MOST_ROUNDS = 10


@dataclass
class SchemaDiff:
    """Compares schemas with bounded work: one budget for breaking and one for additive differences."""

    checker: SchemaChecker
    breaking_budget: Budget = field(default_factory=Budget)
    additive_budget: Budget = field(default_factory=lambda: Budget(4_000))

    def differences(self, path: str, side: Side, old: Schema, new: Schema) -> Iterator[Difference]:
        """Yield breaking and additive differences: input may only accept more, output may only promise more."""
        narrower, wider = (old, new) if side is Side.INPUT else (new, old)
        yield from self._breaking(path, side, narrower, wider)
        if side is Side.OUTPUT:
            yield from removed_fields(path, old, new)
        yield from self._additive(path, side, narrower, wider)
        yield from changed_defaults(path, old, new)

    def gaps(self, narrower: Schema, wider: Schema) -> tuple[UnprovenKeyword, ...]:
        """Return where the proof stops that one schema accepts only what the other accepts. Raises OverBudgetError."""
        return containment_gaps(self.checker, self.breaking_budget, narrower, wider)

    def _breaking(self, path: str, side: Side, narrower: Schema, wider: Schema) -> Iterator[Difference]:
        try:
            for gap in self.gaps(narrower, wider):
                yield describe_breaking(side, path, gap)
        except OverBudgetError:
            words = f"{UNPROVEN} within bounded work"
            yield Difference(path, "budget", ChangeKind.BREAKING, words)

    def _additive(self, path: str, side: Side, narrower: Schema, wider: Schema) -> Iterator[Difference]:
        try:
            for gap in containment_gaps(self.checker, self.additive_budget, wider, narrower):
                yield describe_additive(side, path, gap)
        except OverBudgetError:
            yield Difference(path, "budget", ChangeKind.ADDITIVE, "may allow more than before")


def removed_fields(path: str, old: Schema, new: Schema) -> Iterator[Difference]:
    """Yield result fields that are no longer declared: readers miss them although no schema is violated."""
    for pointer, still_declared in islice(_fields(SchemaShape(old), SchemaShape(new)), _MOST_FIELDS):
        if not still_declared:
            yield Difference(f"{path}#{pointer}", "removed", ChangeKind.BREAKING, "the field is no longer declared")


def _fields(old: SchemaShape, new: SchemaShape) -> Iterator[tuple[str, bool]]:
    """Yield the JSON Pointers of values that the old schema declares, outer ones first, and whether the new one
    declares them; `-` stands for every array item. Fields below a removed field are not yielded."""
    level: list[tuple[str, list[Schema], list[Schema]]] = [("", [old.root], [new.root])]
    looked = 0
    for _ in range(_DEEPEST_FIELD):
        inner: list[tuple[str, list[Schema], list[Schema]]] = []
        for pointer, before, after in level:
            had, has = old.below(*before), new.below(*after)
            looked += 1 + len(had) + len(has)
            if looked > _MOST_LOOKED_AT:
                return
            for (keyword, key), parts in had.items():
                if keyword == "properties" or (keyword == "items" and any(parts)):
                    field, still_declared = (
                        pointer + pointer_of([key if keyword == "properties" else "-"]),
                        has.get((keyword, key), []),
                    )
                    yield field, bool(still_declared)
                    inner += [(field, parts, still_declared)] if still_declared else []
        level = inner


def changed_defaults(path: str, old: Schema, new: Schema) -> Iterator[Difference]:
    """Yield changed defaults: no call is rejected, but the behaviour may differ."""
    before, after = SchemaShape(old).subschemas, SchemaShape(new).subschemas
    for pointer in sorted(before.keys() & after.keys()):
        if _default(before[pointer]) != _default(after[pointer]):
            yield Difference(f"{path}#{pointer}", "default", ChangeKind.ADDITIVE, "the default has changed")


def _default(schema: Schema) -> Hashable:
    return identity(schema["default"]) if "default" in schema else None


def close_schema(schema: Schema) -> Schema:
    """Return an input schema as calls are checked: undeclared properties are always rejected."""
    keywords = {key: part for key, part in schema.items() if key != "additionalProperties" or part not in (True, {})}
    return {"unevaluatedProperties": False, **keywords}


def with_defaults_applied(schema: Schema, checker: SchemaChecker) -> Schema:
    """Return the input schema that callers must satisfy when the mesh applies defaults. Fields with a valid default are
    not required; fields with an invalid one are, and so are the fields that an applied default depends on."""
    defaults = _top_defaults(schema)
    invalid = _invalid(schema, defaults, checker)
    filled = defaults.keys() - invalid
    chains = schema.get("dependentRequired", {})
    beside = (needed for name in sorted(filled) for needed in chains.get(name, ()))
    needed = dict.fromkeys([*schema.get("required", ()), *sorted(invalid), *beside])
    return {**schema, "required": [name for name in needed if name not in filled]}


def _invalid(schema: Schema, defaults: Mapping[str, Any], checker: SchemaChecker) -> set[str]:
    """Return the arguments whose default does not match their schema."""
    alone = {word: schema[word] for word in ("$defs", "definitions", "properties") if word in schema}
    invalid = set[str]()
    for _ in range(_MOST_ROUNDS):
        left = {name: value for name, value in defaults.items() if name not in invalid}
        # All at once, because each call compiles the schema; a checker reports a limited number of findings.
        findings = checker.value_findings(alone, left)
        if not findings:
            return invalid
        wrong = {steps_of(finding.pointer)[0] for finding in findings if finding.pointer}
        invalid |= {name for name in left if name in wrong}
    # With so many invalid defaults, the remaining ones are treated as invalid too.
    return set(defaults)


def _top_defaults(schema: Schema) -> dict[str, Any]:
    """Return the defaults of arguments, their own or that of the schema they refer to."""
    shape, defaults = SchemaShape(schema), dict[str, Any]()
    for name, part in schema.get("properties", {}).items():
        for declared in _chain(shape, part):
            if "default" in declared:
                defaults.setdefault(name, declared["default"])
    return defaults


def _chain(shape: SchemaShape, part: Any) -> Iterator[Schema]:
    """Yield a schema and the schemas it refers to in turn. Circular references are not admitted."""
    while isinstance(part, Mapping):
        yield part
        reference = part.get("$ref")
        part = shape.target(reference) if isinstance(reference, str) else None
