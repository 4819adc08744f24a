"""Estimates the work of evaluating a schema on a value of some size, so that too much is refused before it begins."""

from __future__ import annotations

from typing import NamedTuple

from libs.common.json.pattern_weight import weight
from libs.common.json.schema_guard import SchemaLimits, evaluation_cost, patterns_of
from libs.common.json.schema_shape import Schema, SchemaShape

# Keywords that apply to as many parts as the value has.
_PER_PART = frozenset({
    "items", "contains", "uniqueItems", "unevaluatedItems", "additionalProperties", "patternProperties",
    "unevaluatedProperties", "propertyNames",
})  # fmt: skip
# An array of digits has a part in every two bytes.
_BYTES_OF_A_PART = 2
# A pattern takes about this many steps in the time of one evaluation.
_PATTERN_STEPS = 50
# A pattern may be reached by many references; beyond this it is too much for any text.
_MAX_PATTERN_WORK = 10**9


class EvaluationWork(NamedTuple):
    """The evaluations of a schema, whether they are repeated for every part, and its pattern steps per character.

    A validator does about twenty evaluations per microsecond.
    """

    evaluations: int
    is_per_part: bool
    pattern_steps: int

    @classmethod
    def of(cls, schema: Schema, limits: SchemaLimits) -> EvaluationWork:
        """Measure a schema that is within its limits."""
        shape = SchemaShape(schema)
        is_per_part = any(not _PER_PART.isdisjoint(part) for part in shape.subschemas.values())
        evaluations = shape.evaluations(limits.evaluations, evaluation_cost)
        return cls(evaluations, is_per_part, shape.evaluations(_MAX_PATTERN_WORK, _pattern_cost))

    def units(self, size: int) -> int:
        """Return the most evaluations, or their worth of pattern steps, for a value of `size` bytes of JSON."""
        parts = 1 + size // _BYTES_OF_A_PART if self.is_per_part else 1
        return self.evaluations * parts + self.pattern_steps * size // _PATTERN_STEPS


def _pattern_cost(schema: Schema) -> int:
    return sum(weight(pattern) or 0 for _, pattern in patterns_of(schema))
