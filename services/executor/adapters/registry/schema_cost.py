"""Computes how much work a JSON Schema is for one value, from the schema alone.

A value at depth k below the root is visited by every subschema that a path of k steps leads to, with references
followed and counted as often as they are used. The visits at each depth, times the number of values there, bound the
work of a validation, also for recursive schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import unquote

from libs.common.json.json_pointer import steps_of
from libs.common.json.jsonio import MAX_DEPTH
from services.executor.domain.validation_cost import ValidationCost

Schema: TypeAlias = dict[str, Any]

_SAME_VALUE = ("allOf", "anyOf", "oneOf", "if", "then", "else", "not", "dependentSchemas")
# The keywords that apply to the parts of objects and of arrays: to every part, and to at most one of them.
_PARTS = (
    (("additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames"), ("properties",)),
    (("items", "unevaluatedItems", "contains"), ("prefixItems",)),
)
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
# In units of one keyword, as measured: the comparison with an object or a list, and the match of a name.
_COMPARISON, _NAME_MATCH = 80, 5
_LETTERS_PER_UNIT = 32
_LONGEST_CHAIN = 200
# Higher costs need not be told apart.
MOST = 10**9


def cost_of(schema: Schema) -> ValidationCost:
    """Return the cost of a schema. One that applies itself to the same value has the highest."""
    subschemas = _Subschemas(schema)
    return ValidationCost(subschemas.visits(_keywords), subschemas.visits(_patterns))


@dataclass(frozen=True, slots=True)
class _Subschema:
    """A subschema, and those that it applies to the same value and to its parts, by id."""

    schema: Schema
    same_value: tuple[int, ...]
    parts: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    """For objects and for arrays: those of every part, and those of one part each."""

    @property
    def factor(self) -> int:
        """How often its subschemas are applied: `unevaluated...` applies them a second time."""
        return 2 if "unevaluatedProperties" in self.schema or "unevaluatedItems" in self.schema else 1


class _Subschemas:
    """The subschemas of a schema that a validation may reach."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._anchors = {anchor: schema for schema in _objects(root) for anchor in _anchors(schema)}
        self._reached: dict[int, _Subschema] = {}
        waiting = [root]
        while waiting:
            schema = waiting.pop()
            if id(schema) not in self._reached:
                same = [*_children(schema, _SAME_VALUE), *self._referred(schema)]
                parts = [(list(_children(schema, every)), list(_children(schema, one))) for every, one in _PARTS]
                self._reached[id(schema)] = _Subschema(
                    schema, _ids(same), tuple((_ids(every), _ids(one)) for every, one in parts)
                )
                waiting += [*same, *(child for pair in parts for group in pair for child in group)]

    def visits(self, weigh: Callable[[Schema], int]) -> tuple[int, ...]:
        """Return the weight of all visits of one value at depth 0, 1, and so on; the last holds for deeper ones."""
        at_depth = self._with_same_value({key: weigh(each.schema) for key, each in self._reached.items()})
        visits = [at_depth[id(self._root)]]
        while len(visits) <= MAX_DEPTH:
            below = self._below(at_depth)
            visits.append(below[id(self._root)])
            if below == at_depth or not any(below.values()):
                break
            at_depth = below
        return tuple(visits)

    def _below(self, at_depth: dict[int, int]) -> dict[int, int]:
        """Return the visits of a part of a value, which is an object or an array, from those of a value."""
        kinds = [
            self._with_same_value({key: _of_part(each.parts[kind], at_depth) for key, each in self._reached.items()})
            for kind in range(len(_PARTS))
        ]
        return {key: max(visits[key] for visits in kinds) for key in self._reached}

    def _with_same_value(self, own: dict[int, int]) -> dict[int, int]:
        """Add to each subschema's own visits those of the subschemas that it applies to the same value."""
        visits: dict[int, int] = {}

        def total(key: int, chain: int) -> int:
            if chain > _LONGEST_CHAIN:
                return MOST
            if key not in visits:
                subschema = self._reached[key]
                below = sum(total(child, chain + 1) for child in subschema.same_value)
                visits[key] = min(MOST, own[key] + subschema.factor * below)
            return visits[key]

        for key in self._reached:
            total(key, 0)
        return visits

    def _referred(self, schema: Schema) -> Iterator[Schema]:
        for keyword in _REFERENCES:
            target = self._target(schema.get(keyword))
            if isinstance(target, dict):
                yield target

    def _target(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        fragment = unquote(reference[1:])
        if fragment and not fragment.startswith("/"):
            return self._anchors.get(fragment)
        target: Any = self._root
        for step in steps_of(fragment):
            try:
                target = target[int(step)] if isinstance(target, list) else target[step]
            except (KeyError, IndexError, ValueError, TypeError):
                return None
        return target


def _of_part(parts: tuple[tuple[int, ...], tuple[int, ...]], at_depth: dict[int, int]) -> int:
    every, one = parts
    return min(MOST, sum(at_depth[child] for child in every) + max((at_depth[child] for child in one), default=0))


def _keywords(schema: Schema) -> int:
    """Return the weight of a subschema's own keywords."""
    names = schema.get("patternProperties", ())
    # Every name of a value's members is matched with every pattern.
    weight = len(schema) + _NAME_MATCH * len(names if isinstance(names, dict) else ())
    options = [*_listed(schema.get("enum")), *([schema["const"]] if "const" in schema else [])]
    return weight + _COMPARISON * sum(_composites(option) for option in options) + len(_listed(schema.get("required")))


def _patterns(schema: Schema) -> int:
    """Return the weight of a subschema's patterns and formats, for each byte of a text."""
    names = schema.get("patternProperties", ())
    texts = [schema.get("pattern"), schema.get("format"), *(names if isinstance(names, dict) else ())]
    return sum(1 + len(text) // _LETTERS_PER_UNIT for text in texts if isinstance(text, str))


def _composites(value: Any) -> int:
    """Return how many comparisons an option takes; 0 if it is a scalar, which are found by hash."""
    if not isinstance(value, dict | list):
        return 0
    parts = value.values() if isinstance(value, dict) else value
    return 1 + sum(_composites(part) for part in parts) + len(value)


def _children(schema: Schema, keywords: tuple[str, ...]) -> Iterator[Schema]:
    for keyword in keywords:
        value = schema.get(keyword)
        if keyword in ("properties", "patternProperties", "dependentSchemas") and isinstance(value, dict):
            value = list(value.values())
        yield from (child for child in (value if isinstance(value, list) else [value]) if isinstance(child, dict))


def _anchors(schema: Schema) -> Iterator[str]:
    for keyword in ("$anchor", "$dynamicAnchor"):
        if isinstance(schema.get(keyword), str):
            yield schema[keyword]


def _objects(value: Any) -> Iterator[Schema]:
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if isinstance(current, dict):
            yield current
            waiting.extend(current.values())
        elif isinstance(current, list):
            waiting.extend(current)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _ids(schemas: list[Schema]) -> tuple[int, ...]:
    return tuple(id(schema) for schema in schemas)
