"""Compares two schemas for equality, ignoring annotations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from services.registry.domain.compatibility.proof.budget import Budget
from services.registry.domain.compatibility.proof.subschema import ASSERTIONS, Subschema
from services.registry.domain.compatibility.proof.values import identity

_ONE = frozenset(
    {
        "if", "then", "else", "not", "additionalProperties", "unevaluatedProperties", "propertyNames", "items",
        "unevaluatedItems", "contains",
    }
)  # fmt: skip
_MANY = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED = frozenset({"properties", "patternProperties", "dependentSchemas"})
_SETS = frozenset({"required", "enum", "type"})
Pair: TypeAlias = tuple[tuple[int, int], tuple[int, int]]
Parts: TypeAlias = list[tuple[Subschema, Subschema]]


class SchemaEquality:
    """Compares schemas of two documents and caches the results."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._known: dict[Pair, bool] = {}

    def equal(self, a: Subschema, b: Subschema) -> bool:
        """Return whether both schemas have the same keywords with the same values."""
        # Iterative, because references can lead deeper than the interpreter's stack. A recursive schema equals another
        # if all other parts are equal, so a visited pair is not compared again.
        met: dict[Pair, Pair | None] = {}
        waiting: list[tuple[Subschema, Subschema, Pair | None]] = [(a, b, None)]
        while waiting:
            a, b, root_subschema = waiting.pop()
            pair = (a.key, b.key)
            if a.key == b.key or pair in met or self._known.get(pair):
                continue
            met[pair] = root_subschema
            parts = None if pair in self._known else self._parts(a, b)
            if parts is None:
                self._differ(pair, met)
                return False
            waiting.extend((*part, pair) for part in reversed(parts))
        self._known.update(dict.fromkeys(met, True))
        return True

    def equal_keyword(self, a: Subschema, b: Subschema, keyword: str) -> bool:
        """Return whether both have an equal keyword, or neither has it."""
        parts = _parts(a, b, keyword)
        return parts is not None and all(self.equal(*part) for part in parts)

    def _parts(self, a: Subschema, b: Subschema) -> Parts | None:
        """Return the pairs of subschemas that must be equal; None if the schemas already differ."""
        self._budget.spend()
        pairs: Parts = []
        for keyword in sorted({word for word in (*a.schema, *b.schema) if word in ASSERTIONS}):
            parts = _parts(a, b, keyword)
            if parts is None:
                return None
            pairs.extend(parts)
        return pairs

    def _differ(self, pair: Pair | None, met: dict[Pair, Pair | None]) -> None:
        """Record that a pair differs, and so does every pair that contains it."""
        while pair is not None:
            self._known[pair] = False
            pair = met[pair]


def _parts(a: Subschema, b: Subschema, keyword: str) -> Parts | None:
    """Return the pairs of subschemas that must be equal for a keyword to be equal; None if it differs."""
    if a.has(keyword) != b.has(keyword):
        return None
    if not a.has(keyword):
        return []
    if keyword in _ONE:
        return [(a.child(keyword), b.child(keyword))]
    if keyword in _MANY:
        return _paired(dict(enumerate(a.children(keyword))), dict(enumerate(b.children(keyword))))
    if keyword in _NAMED:
        return _paired(a.children_by_name(keyword), b.children_by_name(keyword))
    if keyword == "$ref":
        left, right = a.ref_target(), b.ref_target()
        return None if left is None or right is None else [(left, right)]
    if keyword in _SETS:
        return [] if _as_set(a.get(keyword)) == _as_set(b.get(keyword)) else None
    # The target of a dynamic reference depends on the referrer, so equal text proves nothing.
    return [] if keyword != "$dynamicRef" and identity(a.get(keyword)) == identity(b.get(keyword)) else None


def _paired(a: Mapping[Any, Subschema], b: Mapping[Any, Subschema]) -> Parts | None:
    return [(a[key], b[key]) for key in a] if a.keys() == b.keys() else None


def _as_set(value: Any) -> frozenset[Any]:
    return frozenset(identity(item) for item in (value if isinstance(value, list) else [value]))
