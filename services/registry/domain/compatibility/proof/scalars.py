"""Proves the string and number keywords of a goal."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from services.registry.domain.compatibility.proof.subschema import Subschema
from services.registry.domain.compatibility.proof.unproven_keyword import UnprovenKeyword
from services.registry.domain.compatibility.proof.value_constraints import Constraints

# Unanchored patterns that match every string.
_ALWAYS_FOUND = frozenset({"", "^", "$", ".*", "^.*"})


def string_gaps(constraints: Constraints, goal: Subschema) -> Iterator[UnprovenKeyword]:
    """Yield the string keywords of the goal that are not proven."""
    if goal.schema.get("minLength", 0) > constraints.least("minLength"):
        yield UnprovenKeyword(goal.pointer, "minLength")
    if goal.has("maxLength") and not _at_most(constraints.most("maxLength"), goal.get("maxLength")):
        yield UnprovenKeyword(goal.pointer, "maxLength")
    if goal.has("pattern") and goal.get("pattern") not in _ALWAYS_FOUND | _values_of(constraints, "pattern"):
        yield UnprovenKeyword(goal.pointer, "pattern")
    if goal.has("format") and goal.get("format") not in _values_of(constraints, "format"):
        yield UnprovenKeyword(goal.pointer, "format")


def number_gaps(constraints: Constraints, goal: Subschema, kind: str) -> Iterator[UnprovenKeyword]:
    """Yield the number keywords of the goal that are not proven."""
    low, high = constraints.lower(kind), constraints.upper(kind)
    if goal.has("minimum") and (low is None or low.at < goal.get("minimum")):
        yield UnprovenKeyword(goal.pointer, "minimum")
    if goal.has("maximum") and (high is None or high.at > goal.get("maximum")):
        yield UnprovenKeyword(goal.pointer, "maximum")
    if goal.has("exclusiveMinimum"):
        bound = goal.get("exclusiveMinimum")
        if low is None or low.at < bound or (low.at == bound and not low.exclusive):
            yield UnprovenKeyword(goal.pointer, "exclusiveMinimum")
    if goal.has("exclusiveMaximum"):
        bound = goal.get("exclusiveMaximum")
        if high is None or high.at > bound or (high.at == bound and not high.exclusive):
            yield UnprovenKeyword(goal.pointer, "exclusiveMaximum")
    if goal.has("multipleOf") and not _steps_fit(constraints, goal.get("multipleOf"), kind):
        yield UnprovenKeyword(goal.pointer, "multipleOf")


def _at_most(known: Any, limit: Any) -> bool:
    return known is not None and known <= limit


def _values_of(constraints: Constraints, keyword: str) -> frozenset[str]:
    return frozenset(atom.get(keyword) for atom in constraints.atoms if atom.has(keyword))


def _steps_fit(constraints: Constraints, step: Any, kind: str) -> bool:
    known = [as_fraction(atom.get("multipleOf")) for atom in constraints.atoms if atom.has("multipleOf")]
    known += [Fraction(1)] if kind == "integer" else []
    return any((known_step / as_fraction(step)).denominator == 1 for known_step in known)


def as_fraction(step: Any) -> Fraction:
    """Return a step as the validator reads it: by its decimal digits, not by the nearest binary fraction."""
    return Fraction(str(step)) if isinstance(step, float) else Fraction(step)
