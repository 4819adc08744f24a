"""Whether two schemas say the same, word for word, annotations aside."""

from __future__ import annotations

from typing import Any

from services.registry.domain.compatibility.budget import Budget
from services.registry.domain.compatibility.places import ASSERTIONS, Place
from services.registry.domain.compatibility.values import identity

_ONE = frozenset(
    {
        "if", "then", "else", "not", "additionalProperties", "unevaluatedProperties", "propertyNames", "items",
        "unevaluatedItems", "contains",
    }
)  # fmt: skip
_MANY = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED = frozenset({"properties", "patternProperties", "dependentSchemas"})
_SETS = frozenset({"required", "enum", "type"})


class Sameness:
    """Compares schemas of two documents; what was found the same once need not be looked at again."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._known: dict[tuple[tuple[int, int], tuple[int, int]], bool] = {}

    def same(self, a: Place, b: Place) -> bool:
        """True if both accept the same values because they are the same text."""
        if a.key == b.key:
            return True
        pair = (a.key, b.key)
        if pair in self._known:
            return self._known[pair]
        self._budget.spend()
        # A schema that refers back to itself is the same as another if all else is. Should a difference turn up, whatever
        # was found the same on that assumption is forgotten with it.
        before = len(self._known)
        self._known[pair] = True
        if self._compare(a, b):
            return True
        for added in list(self._known)[before:]:
            if self._known[added]:
                del self._known[added]
        self._known[pair] = False
        return False

    def same_keyword(self, a: Place, b: Place, keyword: str) -> bool:
        """True if both have the keyword, or neither has it, with the same meaning."""
        if a.has(keyword) != b.has(keyword):
            return False
        if not a.has(keyword):
            return True
        if keyword in _ONE:
            return self.same(a.child(keyword), b.child(keyword))
        if keyword in _MANY:
            return self._all(dict(enumerate(a.children(keyword))), dict(enumerate(b.children(keyword))))
        if keyword in _NAMED:
            return self._all(a.named(keyword), b.named(keyword))
        if keyword == "$ref":
            left, right = a.referred(), b.referred()
            return left is not None and right is not None and self.same(left, right)
        if keyword in _SETS:
            return _as_set(a.get(keyword)) == _as_set(b.get(keyword))
        # What a dynamic reference means depends on who refers, so equal words prove nothing.
        return keyword != "$dynamicRef" and identity(a.get(keyword)) == identity(b.get(keyword))

    def _compare(self, a: Place, b: Place) -> bool:
        keywords = sorted({word for word in (*a.schema, *b.schema) if word in ASSERTIONS})
        return all(self.same_keyword(a, b, keyword) for keyword in keywords)

    def _all(self, a: Any, b: Any) -> bool:
        return a.keys() == b.keys() and all(self.same(a[key], b[key]) for key in a)


def _as_set(value: Any) -> frozenset[Any]:
    return frozenset(identity(item) for item in (value if isinstance(value, list) else [value]))
