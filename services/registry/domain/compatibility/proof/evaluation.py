"""Evaluates one value against a schema with the results true, false and unknown (None)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from services.registry.domain.compatibility.proof.budget import Budget
from services.registry.domain.compatibility.proof.subschema import Subschema
from services.registry.domain.compatibility.proof.values import identity, kind_of, kinds_of
from services.registry.domain.ports import SchemaChecker

Ternary: TypeAlias = bool | None
# The cost of a leaf check, for which the checker compiles a schema.
_LEAF_STEPS = 10
_MOST_ITEMS = 200


def all_of(answers: Iterable[Ternary]) -> Ternary:
    """Return False if any is False, else None if any is None, else True."""
    result: Ternary = True
    for answer in answers:
        if answer is False:
            return False
        if answer is None:
            result = None
    return result


def any_of(answers: Iterable[Ternary]) -> Ternary:
    """Return True if any is True, else None if any is None, else False."""
    flipped = all_of(None if answer is None else not answer for answer in answers)
    return None if flipped is None else not flipped


class ValueEvaluator:
    """Evaluates values. Regular expressions, formats and `multipleOf` are delegated to the checker that calls use."""

    def __init__(self, checker: SchemaChecker, budget: Budget) -> None:
        self._checker, self._budget = checker, budget
        self._leaves: dict[Any, bool] = {}
        self._enums: dict[int, tuple[list[Any], frozenset[Any]]] = {}

    def is_valid(self, subschema: Subschema, value: Any, depth: int = 0) -> Ternary:
        """Return whether a value is valid; None when unknown."""
        self._budget.spend()
        self._budget.check_depth(depth)
        if subschema.has("$dynamicRef") or subschema.has("dependencies"):
            return None
        kind = kind_of(value)
        answers = (
            self._plain(subschema, value, kind),
            self._combined(subschema, value, depth),
            self._object(subschema, value, depth) if kind == "object" else True,
            self._array(subschema, value, depth) if kind == "array" else True,
        )
        return all_of(answers)

    def leaf(self, keyword: str, argument: Any, value: Any) -> bool:
        """Check one keyword against one plain value with the checker."""
        key = (keyword, identity(argument), identity(value))
        if key not in self._leaves:
            self._budget.spend(_LEAF_STEPS)
            self._leaves[key] = not self._checker.value_findings({keyword: argument}, value)
        return self._leaves[key]

    def matches(self, pattern: str, name: str) -> bool:
        """Return whether a property name matches a pattern."""
        return self.leaf("pattern", pattern, name)

    def _plain(self, subschema: Subschema, value: Any, kind: str) -> Ternary:
        schema = subschema.schema
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
        # The entry holds the list itself, so that its id is not reused.
        known = self._enums.get(id(values))
        if known is None:
            known = self._enums[id(values)] = (values, frozenset(identity(item) for item in values))
        return known[1]

    def _number(self, schema: Mapping[str, Any], value: Any) -> Ternary:
        tests: dict[str, Callable[[Any], bool]] = {
            "minimum": lambda bound: value >= bound,
            "maximum": lambda bound: value <= bound,
            "exclusiveMinimum": lambda bound: value > bound,
            "exclusiveMaximum": lambda bound: value < bound,
            "multipleOf": lambda step: self.leaf("multipleOf", step, value),
        }
        return all(test(schema[keyword]) for keyword, test in tests.items() if keyword in schema)

    def _string(self, schema: Mapping[str, Any], value: str) -> Ternary:
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            return False
        return all(self.leaf(word, schema[word], value) for word in ("pattern", "format") if word in schema)

    def _combined(self, subschema: Subschema, value: Any, depth: int) -> Ternary:
        def inner(child: Subschema) -> Ternary:
            return self.is_valid(child, value, depth + 1)

        answers: list[Ternary] = [inner(child) for child in subschema.children("allOf")]
        if subschema.has("$ref"):
            target = subschema.ref_target()
            answers.append(inner(target) if target else None)
        if subschema.has("anyOf"):
            answers.append(any_of(inner(child) for child in subschema.children("anyOf")))
        if subschema.has("oneOf"):
            results = [inner(child) for child in subschema.children("oneOf")]
            answers.append(None if None in results else results.count(True) == 1)
        if subschema.has("not"):
            negated = inner(subschema.child("not"))
            answers.append(None if negated is None else not negated)
        if subschema.has("if"):
            answers.append(self._conditional(subschema, inner))
        return all_of(answers)

    def _conditional(self, subschema: Subschema, inner: Callable[[Subschema], Ternary]) -> Ternary:
        condition = inner(subschema.child("if"))
        if condition is None:
            return None
        branch = "then" if condition else "else"
        return inner(subschema.child(branch)) if subschema.has(branch) else True

    def _object(self, subschema: Subschema, value: Mapping[str, Any], depth: int) -> Ternary:
        schema = subschema.schema
        if subschema.has("unevaluatedProperties"):
            return None
        if any(name not in value for name in schema.get("required", ())):
            return False
        if not schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", len(value)):
            return False
        for name, needed in schema.get("dependentRequired", {}).items():
            if name in value and any(other not in value for other in needed):
                return False
        return all_of(self._members(subschema, value, depth))

    def _members(self, subschema: Subschema, value: Mapping[str, Any], depth: int) -> Iterable[Ternary]:
        for name, item in value.items():
            for child in applicable(subschema, name, self.matches):
                yield self.is_valid(child, item, depth + 1)
            if subschema.has("propertyNames"):
                yield self.is_valid(subschema.child("propertyNames"), name, depth + 1)
        for name, child in subschema.children_by_name("dependentSchemas").items():
            if name in value:
                yield self.is_valid(child, value, depth + 1)

    def _array(self, subschema: Subschema, value: list[Any], depth: int) -> Ternary:
        schema = subschema.schema
        if subschema.has("unevaluatedItems") or len(value) > _MOST_ITEMS:
            return None
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            return False
        if schema.get("uniqueItems") and len({identity(item) for item in value}) < len(value):
            return False
        return all_of((*self._items(subschema, value, depth), self._contains(subschema, value, depth)))

    def _items(self, subschema: Subschema, value: list[Any], depth: int) -> Iterable[Ternary]:
        prefix = subschema.children("prefixItems")
        for index, item in enumerate(value):
            if index < len(prefix):
                yield self.is_valid(prefix[index], item, depth + 1)
            elif subschema.has("items"):
                yield self.is_valid(subschema.child("items"), item, depth + 1)

    def _contains(self, subschema: Subschema, value: list[Any], depth: int) -> Ternary:
        if not subschema.has("contains"):
            return True
        wanted = subschema.child("contains")
        results = [self.is_valid(wanted, item, depth + 1) for item in value]
        if None in results:
            return None
        least, most = subschema.schema.get("minContains", 1), subschema.schema.get("maxContains", len(value))
        return bool(least <= results.count(True) <= most)


def applicable(subschema: Subschema, name: str, matches: Callable[[str, str], bool]) -> tuple[Subschema, ...]:
    """Return the subschemas that a schema applies to a property of this name, without `unevaluatedProperties`."""
    subschemas = []
    if name in subschema.schema.get("properties", {}):
        subschemas.append(subschema.child("properties", name))
    for pattern in subschema.schema.get("patternProperties", {}):
        if matches(pattern, name):
            subschemas.append(subschema.child("patternProperties", pattern))
    if not subschemas and subschema.has("additionalProperties"):
        subschemas.append(subschema.child("additionalProperties"))
    return tuple(subschemas)
