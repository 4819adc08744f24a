"""Counts how often a recursive schema visits the same part of a value.

A schema that applies itself to one part in two branches visits a part at depth n 2^n times, and a validator that
collects errors makes all of these visits. A schema that applies itself to different parts, as those of trees do, visits
each part once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from libs.common.json.jsonio import MAX_DEPTH
from libs.common.json.schema_shape import DEFINITIONS, Schema, SchemaShape, children

# The steps down of one schema, with those of all that apply to the same value.
_MAX_STEPS = 5_000
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

    def applies(self, name: str | None) -> bool:
        return self.name == name if self.keyword in _BY_NAME else name not in self.except_names


def visits_of_one_part(shape: SchemaShape, limit: int) -> int:
    """Return the most visits of one part of a value by recursion, at most `limit`. The schema is not circular."""
    recursion = _Recursion(shape)
    visits: _Visits = dict.fromkeys(recursion.schemas, 1)
    for _ in range(MAX_DEPTH):
        deeper = recursion.one_level_deeper(visits)
        if deeper is None or max(deeper.values(), default=0) >= limit:
            return limit
        if deeper == visits:
            break
        visits = deeper
    return max(visits.values(), default=1)


class _Recursion:
    """The schemas of a shape that lead back to themselves, with their steps down."""

    def __init__(self, shape: SchemaShape) -> None:
        self._shape = shape
        self.schemas = _recursive(shape)
        self._steps: dict[int, Counter[_Step]] = {}
        self._groups: dict[int, list[list[tuple[int, int]]]] = {}

    def one_level_deeper(self, visits: _Visits) -> dict[int, int] | None:
        """Return the visits with one more level of parts; None if there are too many steps to count them."""
        deeper: dict[int, int] = {}
        for identity, schema in self.schemas.items():
            if identity not in self._groups:
                steps = self._below(schema)
                if len(steps) > _MAX_STEPS:
                    return None
                self._groups[identity] = [*_groups(steps)]
            groups = self._groups[identity]
            deeper[identity] = max(
                (sum(times * visits[child] for child, times in group) for group in groups), default=0
            )
        return deeper

    def _below(self, schema: Schema) -> Counter[_Step]:
        """Return the steps of a schema and all that apply to the same value, with how often each is taken."""
        if id(schema) not in self._steps:
            steps = Counter(step for step in _own_steps(schema) if step.child in self.schemas)
            for other in self._shape.same_value(schema):
                if id(other) in self.schemas and len(steps) <= _MAX_STEPS:
                    steps.update(self._below(other))
            self._steps[id(schema)] = steps
        return self._steps[id(schema)]


def _own_steps(schema: Schema) -> Iterator[_Step]:
    for keyword, name, child in children(schema):
        if keyword in _KINDS[0] or keyword in _KINDS[1]:
            named = schema.get(_REST.get(keyword, ""), ())
            names = named if isinstance(named, dict) else map(str, range(len(named))) if isinstance(named, list) else ()
            yield _Step(keyword, name, frozenset(names), id(child))


def _groups(steps: Mapping[_Step, int]) -> Iterator[list[tuple[int, int]]]:
    """Yield the subschemas that can apply to one part together, each with how often."""
    for kind in _KINDS:
        present = [(step, times) for step, times in steps.items() if step.keyword in kind]
        names: set[str | None] = {step.name for step, _ in present if step.keyword in _BY_NAME}
        for name in (*names, None):
            yield [(step.child, times) for step, times in present if step.applies(name)]


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
