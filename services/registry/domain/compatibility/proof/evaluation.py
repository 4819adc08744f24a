"""Whether one value is valid, answered as yes, no, or unknown. An unknown proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from services.registry.domain.compatibility.proof.budget import Budget
from services.registry.domain.compatibility.proof.subschema import Place
from services.registry.domain.compatibility.proof.values import identity, kind_of, kinds_of
from services.registry.domain.ports import SchemaChecker

Answer: TypeAlias = bool | None
# What a leaf costs that is asked of the checker, which compiles it first.
_LEAF_STEPS = 10
_MOST_ITEMS = 200


def every(answers: Iterable[Answer]) -> Answer:
    """Return no if any is no, else unknown if any is unknown."""
    result: Answer = True
    for answer in answers:
        if answer is False:
            return False
        if answer is None:
            result = None
    return result


def some(answers: Iterable[Answer]) -> Answer:
    """Return yes if any is yes, else unknown if any is unknown."""
    flipped = every(None if answer is None else not answer for answer in answers)
    return None if flipped is None else not flipped


class Evaluation:
    """Evaluates values. Regular expressions, formats and fractions are left to the checker that calls will use."""

    def __init__(self, checker: SchemaChecker, budget: Budget) -> None:
        self._checker, self._budget = checker, budget
        self._leaves: dict[Any, bool] = {}
        self._enums: dict[int, tuple[list[Any], frozenset[Any]]] = {}

    def holds(self, place: Place, value: Any, depth: int = 0) -> Answer:
        """Say whether a value is valid."""
        self._budget.spend()
        self._budget.check_depth(depth)
        if place.has("$dynamicRef") or place.has("dependencies"):
            return None
        kind = kind_of(value)
        answers = (
            self._plain(place, value, kind),
            self._combined(place, value, depth),
            self._object(place, value, depth) if kind == "object" else True,
            self._array(place, value, depth) if kind == "array" else True,
        )
        return every(answers)

    def leaf(self, keyword: str, argument: Any, value: Any) -> bool:
        """Ask the checker about one keyword and one plain value."""
        key = (keyword, identity(argument), identity(value))
        if key not in self._leaves:
            self._budget.spend(_LEAF_STEPS)
            self._leaves[key] = not self._checker.value_findings({keyword: argument}, value)
        return self._leaves[key]

    def matches(self, pattern: str, name: str) -> bool:
        """Say whether a property's name matches a pattern."""
        return self.leaf("pattern", pattern, name)

    def _plain(self, place: Place, value: Any, kind: str) -> Answer:
        schema = place.schema
        if "type" in schema and kind not in kinds_of(schema["type"]):
            return False
        if "const" in schema and identity(schema["const"]) != identity(value):
            return False
        if "enum" in schema and identity(value) not in self._listed(schema["enum"]):
            return False
        if kind in ("integer", "fraction"):
            return self._number(schema, value)
        return self._string(schema, value) if kind == "string" else True

    def _listed(self, values: list[Any]) -> frozenset[Any]:
        # Kept with the list itself, so that its place in memory is nobody else's.
        known = self._enums.get(id(values))
        if known is None:
            known = self._enums[id(values)] = (values, frozenset(identity(item) for item in values))
        return known[1]

    def _number(self, schema: Mapping[str, Any], value: Any) -> Answer:
        tests: dict[str, Callable[[Any], bool]] = {
            "minimum": lambda bound: value >= bound,
            "maximum": lambda bound: value <= bound,
            "exclusiveMinimum": lambda bound: value > bound,
            "exclusiveMaximum": lambda bound: value < bound,
            "multipleOf": lambda step: self.leaf("multipleOf", step, value),
        }
        return all(test(schema[keyword]) for keyword, test in tests.items() if keyword in schema)

    def _string(self, schema: Mapping[str, Any], value: str) -> Answer:
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            return False
        return all(self.leaf(word, schema[word], value) for word in ("pattern", "format") if word in schema)

    def _combined(self, place: Place, value: Any, depth: int) -> Answer:
        def inner(child: Place) -> Answer:
            return self.holds(child, value, depth + 1)

        answers: list[Answer] = [inner(child) for child in place.children("allOf")]
        if place.has("$ref"):
            target = place.referred()
            answers.append(inner(target) if target else None)
        if place.has("anyOf"):
            answers.append(some(inner(child) for child in place.children("anyOf")))
        if place.has("oneOf"):
            found = [inner(child) for child in place.children("oneOf")]
            answers.append(None if None in found else found.count(True) == 1)
        if place.has("not"):
            found_not = inner(place.child("not"))
            answers.append(None if found_not is None else not found_not)
        if place.has("if"):
            answers.append(self._conditional(place, inner))
        return every(answers)

    def _conditional(self, place: Place, inner: Callable[[Place], Answer]) -> Answer:
        condition = inner(place.child("if"))
        if condition is None:
            return None
        branch = "then" if condition else "else"
        return inner(place.child(branch)) if place.has(branch) else True

    def _object(self, place: Place, value: Mapping[str, Any], depth: int) -> Answer:
        schema = place.schema
        if place.has("unevaluatedProperties"):
            return None
        if any(name not in value for name in schema.get("required", ())):
            return False
        if not schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", len(value)):
            return False
        for name, needed in schema.get("dependentRequired", {}).items():
            if name in value and any(other not in value for other in needed):
                return False
        return every(self._members(place, value, depth))

    def _members(self, place: Place, value: Mapping[str, Any], depth: int) -> Iterable[Answer]:
        for name, item in value.items():
            for child in applied(place, name, self.matches):
                yield self.holds(child, item, depth + 1)
            if place.has("propertyNames"):
                yield self.holds(place.child("propertyNames"), name, depth + 1)
        for name, child in place.named("dependentSchemas").items():
            if name in value:
                yield self.holds(child, value, depth + 1)

    def _array(self, place: Place, value: list[Any], depth: int) -> Answer:
        schema = place.schema
        if place.has("unevaluatedItems") or len(value) > _MOST_ITEMS:
            return None
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            return False
        if schema.get("uniqueItems") and len({identity(item) for item in value}) < len(value):
            return False
        return every((*self._items(place, value, depth), self._contains(place, value, depth)))

    def _items(self, place: Place, value: list[Any], depth: int) -> Iterable[Answer]:
        prefix = place.children("prefixItems")
        for index, item in enumerate(value):
            if index < len(prefix):
                yield self.holds(prefix[index], item, depth + 1)
            elif place.has("items"):
                yield self.holds(place.child("items"), item, depth + 1)

    def _contains(self, place: Place, value: list[Any], depth: int) -> Answer:
        if not place.has("contains"):
            return True
        wanted = place.child("contains")
        found = [self.holds(wanted, item, depth + 1) for item in value]
        if None in found:
            return None
        least, most = place.schema.get("minContains", 1), place.schema.get("maxContains", len(value))
        return bool(least <= found.count(True) <= most)


def applied(place: Place, name: str, matches: Callable[[str, str], bool]) -> tuple[Place, ...]:
    """Return what a schema itself asks of a property of this name; what it asks of unevaluated ones is left out."""
    found = []
    if name in place.schema.get("properties", {}):
        found.append(place.child("properties", name))
    for pattern in place.schema.get("patternProperties", {}):
        if matches(pattern, name):
            found.append(place.child("patternProperties", pattern))
    if not found and place.has("additionalProperties"):
        found.append(place.child("additionalProperties"))
    return tuple(found)
