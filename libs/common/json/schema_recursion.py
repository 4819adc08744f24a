"""Counts how often a recursive schema visits the same part of a value.

A schema that applies itself to one part in two branches visits a part at depth n 2^n times, and a validator that
collects errors makes all of these visits. A schema that applies itself to different parts, as those of trees do, visits
each part once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from libs.common.json.jsonio import MAX_DEPTH
from libs.common.json.schema_shape import DEFINITIONS, Schema, SchemaShape, children

# Steps down in all, each counted for every schema that applies to the same value. More are not counted but refused.
_MAX_STEPS = 20_000
_BY_NAME = {"properties", "prefixItems"}
# Applies to all parts but those that the same schema names with the other keyword.
_REST = {"additionalProperties": "properties", "items": "prefixItems"}
_KINDS = ("properties", "additionalProperties", "patternProperties", "unevaluatedProperties"), (
    "prefixItems", "items", "contains", "unevaluatedItems",
)  # fmt: skip
_Visits: TypeAlias = Mapping[int, int]


class _Step(NamedTuple):
    """A subschema that applies to parts of the value: to one name, or to all but some."""

    keyword: str
    name: str
    except_names: frozenset[str]
    child: int


class _TooManyStepsError(Exception):
    """The recursion of a schema has too many steps to count its visits."""


def visits_of_one_part(shape: SchemaShape, limit: int) -> int:
    """Return the most visits of one part of a value by recursion, at most `limit`. The schema is not circular."""
    try:
        levels = _Recursion(shape).levels()
    except _TooManyStepsError:
        return limit
    visits = dict.fromkeys(levels, 1)
    for _ in range(MAX_DEPTH):
        deeper = {schema: _most_visits(steps, visits) for schema, steps in levels.items()}
        if max(deeper.values(), default=0) >= limit:
            return limit
        if deeper == visits:
            break
        visits = deeper
    return max(visits.values(), default=1)


class _Recursion:
    """The schemas of a shape that lead back to themselves, with their steps down."""

    def __init__(self, shape: SchemaShape) -> None:
        self._shape = shape
        self._schemas = _recursive(shape)
        self._steps: dict[int, Counter[_Step]] = {}
        self._meanings: dict[int, Schema] = {}
        self._left = _MAX_STEPS

    def levels(self) -> dict[int, Counter[_Step]]:
        """Return the steps of every schema that a step leads to, by the schema's identity."""
        children_of_steps = {step.child for schema in self._schemas.values() for step in self._own_steps(schema)}
        return {child: self._below(self._schemas[child]) for child in children_of_steps}

    def _below(self, schema: Schema) -> Counter[_Step]:
        """Return the steps of a schema and all that apply to the same value, with how often each is taken."""
        if id(schema) not in self._steps:
            steps = Counter(self._own_steps(schema))
            for other in self._same_value(schema):
                steps.update(self._below(other))
            self._left -= len(steps)
            if self._left < 0:
                raise _TooManyStepsError
            self._steps[id(schema)] = steps
        return self._steps[id(schema)]

    def _own_steps(self, schema: Schema) -> Iterator[_Step]:
        for keyword, name, child in self._parts(schema):
            yield _Step(keyword, name, _names(schema.get(_REST.get(keyword, ""))), id(self._meant(child)))

    def _parts(self, schema: Schema) -> Iterator[tuple[str, str, Schema]]:
        for keyword, name, child in children(schema):
            if id(child) in self._schemas and any(keyword in kind for kind in _KINDS):
                yield keyword, name, child

    def _meant(self, schema: Schema) -> Schema:
        """Follow schemas that do nothing but refer to one other, which is what most recursive parts do."""
        if id(schema) not in self._meanings:
            others = [*islice(self._same_value(schema), 2)]
            refers = len(others) == 1 and next(self._parts(schema), None) is None
            self._meanings[id(schema)] = self._meant(others[0]) if refers else schema
        return self._meanings[id(schema)]

    def _same_value(self, schema: Schema) -> Iterator[Schema]:
        return (other for other in self._shape.same_value(schema) if id(other) in self._schemas)


def _names(named: Any) -> frozenset[str]:
    if isinstance(named, list):
        return frozenset(map(str, range(len(named))))
    return frozenset(named) if isinstance(named, dict) else frozenset()


def _most_visits(steps: Mapping[_Step, int], visits: _Visits) -> int:
    """Return the most visits of one part: those of a name, of all parts, and of the rest that it belongs to."""
    most = 0
    for kind in _KINDS:
        everywhere, by_name = 0, Counter[str]()
        for step, times in steps.items():
            if step.keyword not in kind:
                continue
            count = times * visits[step.child]
            if step.keyword in _BY_NAME:
                by_name[step.name] += count
            else:
                everywhere += count
                by_name.subtract(dict.fromkeys(step.except_names, count))
        most = max(most, everywhere + max(0, max(by_name.values(), default=0)))
    return most


def _recursive(shape: SchemaShape) -> dict[int, Schema]:
    """Return the schemas on circles of steps and references, or between two circles, by identity."""
    left = {id(schema): schema for schema in shape.subschemas.values()}
    below = {
        identity: {id(child) for child in _below(shape, schema)} & left.keys() for identity, schema in left.items()
    }
    above: dict[int, set[int]] = {identity: set() for identity in left}
    for identity, children_of in below.items():
        for child in children_of:
            above[child].add(identity)
    kept = _without_ends(_without_ends(left.keys(), below, above), above, below)
    return {identity: left[identity] for identity in kept}


def _without_ends(nodes: Iterable[int], out: Mapping[int, set[int]], back: Mapping[int, set[int]]) -> set[int]:
    """Remove nodes that lead nowhere, until each that is left leads to another."""
    kept = set(nodes)
    degree = {node: len(out[node] & kept) for node in kept}
    waiting = [node for node in kept if not degree[node]]
    while waiting:
        node = waiting.pop()
        kept.discard(node)
        for source in back[node] & kept:
            degree[source] -= 1
            if not degree[source]:
                waiting.append(source)
    return kept


def _below(shape: SchemaShape, schema: Schema) -> Iterator[Schema]:
    yield from (child for keyword, _, child in children(schema) if keyword not in DEFINITIONS)
    yield from shape.same_value(schema)
