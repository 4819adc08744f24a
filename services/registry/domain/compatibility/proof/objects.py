"""Proves the object keywords of a goal, and contradictions between constraints on objects.

Property names fall into classes: each name that is mentioned anywhere, the names that match a pattern, and all others.
Constraints and goal are compared class by class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from services.registry.domain.compatibility.proof.evaluation import applicable
from services.registry.domain.compatibility.proof.prover import Prover
from services.registry.domain.compatibility.proof.subschema import NOTHING, Subschema, as_schema
from services.registry.domain.compatibility.proof.unproven_keyword import UnprovenKeyword
from services.registry.domain.compatibility.proof.value_constraints import Constraints

OBJECT = frozenset({"object"})
_STRING = {"type": "string"}
_KEYWORDS = frozenset(
    {
        "required", "minProperties", "maxProperties", "properties", "patternProperties", "additionalProperties",
        "unevaluatedProperties", "propertyNames", "dependentRequired", "dependentSchemas",
    }
)  # fmt: skip


@dataclass
class EvaluatedProperties:
    """The properties that a schema evaluates, so that `unevaluatedProperties` does not apply to them."""

    names: set[str] = field(default_factory=set)
    patterns: set[str] = field(default_factory=set)
    open: bool = False
    """True if the schema evaluates properties of any name."""

    def add(self, schema: Subschema) -> None:
        self.names |= set(schema.schema.get("properties", ()))
        self.patterns |= set(schema.schema.get("patternProperties", ()))
        self.open |= schema.has("additionalProperties")

    def covers(self, prover: Prover, name: str) -> bool:
        return self.open or name in self.names or any(prover.evaluation.matches(p, name) for p in self.patterns)


class ObjectView:
    """The constraints on the properties of an object, class by class."""

    def __init__(self, prover: Prover, constraints: Constraints) -> None:
        self._prover, self._constraints = prover, constraints
        self._may = {atom.key: _may_evaluate(atom) for atom in constraints.atoms if atom.has("unevaluatedProperties")}
        self.names = set(constraints.required)
        self.patterns: set[str] = set()
        for atom in constraints.atoms:
            self.names |= set(atom.schema.get("properties", ()))
            self.patterns |= set(atom.schema.get("patternProperties", ()))
        for may in self._may.values():
            self.names |= may.names
            self.patterns |= may.patterns

    def of_name(self, name: str) -> tuple[Subschema, ...]:
        """Return the constraints on the property of this name."""
        subschemas: list[Subschema] = []
        for atom in self._constraints.atoms:
            subschemas.extend(applicable(atom, name, self._prover.evaluation.matches))
            may = self._may.get(atom.key)
            if may is not None and not may.covers(self._prover, name):
                subschemas.append(atom.child("unevaluatedProperties"))
            if atom.has("propertyNames") and self._refuses(atom.child("propertyNames"), name):
                subschemas.append(atom.sibling(NOTHING))
        return tuple(subschemas)

    def of_pattern(self, pattern: str) -> tuple[Subschema, ...]:
        """Return the constraints on properties that match a pattern and are not mentioned by name."""
        subschemas: list[Subschema] = []
        for atom in self._constraints.atoms:
            if pattern in atom.schema.get("patternProperties", {}):
                subschemas.append(atom.child("patternProperties", pattern))
            elif atom.has("additionalProperties") and not atom.get("patternProperties"):
                subschemas.append(atom.child("additionalProperties"))
            may = self._may.get(atom.key)
            if may is not None and not may.open and not may.patterns:
                subschemas.append(atom.child("unevaluatedProperties"))
        return tuple(subschemas)

    def of_others(self) -> tuple[Subschema, ...]:
        """Return the constraints on properties that are not mentioned and match no pattern."""
        subschemas = [
            atom.child("additionalProperties") for atom in self._constraints.atoms if atom.has("additionalProperties")
        ]
        for atom in self._constraints.atoms:
            may = self._may.get(atom.key)
            if may is not None and not may.open:
                subschemas.append(atom.child("unevaluatedProperties"))
        return tuple(subschemas)

    def possible_names(self) -> set[str] | None:
        """Return every name that a property can have; None when the set is unbounded."""
        empty = self._prover.is_empty
        if any(not empty(self.of_pattern(pattern)) for pattern in self.patterns) or not empty(self.of_others()):
            return None
        return {name for name in self.names if not empty(self.of_name(name))}

    def most(self) -> int | None:
        """Return the maximum number of properties; None without a limit."""
        limits = [limit for limit in (self._constraints.most("maxProperties"),) if limit is not None]
        with self._prover.descend():
            names = self.possible_names()
        return min([*limits, *([] if names is None else [len(names)])], default=None)

    def _refuses(self, names: Subschema, name: str) -> bool:
        return self._prover.evaluation.is_valid(names, name) is False


def gaps(prover: Prover, constraints: Constraints, goal: Subschema) -> Iterator[UnprovenKeyword]:
    """Yield the object keywords of the goal that are not proven."""
    if not any(keyword in goal.schema for keyword in _KEYWORDS):
        return
    view = ObjectView(prover, constraints)
    prover.budget.spend(len(view.names) // 16)
    for name in goal.schema.get("required", ()):
        if name not in constraints.required:
            yield UnprovenKeyword(goal.pointer, "required", name)
    if goal.schema.get("minProperties", 0) > max(constraints.least("minProperties"), len(constraints.required)):
        yield UnprovenKeyword(goal.pointer, "minProperties")
    if goal.has("maxProperties"):
        most = view.most()
        if most is None or most > goal.get("maxProperties"):
            yield UnprovenKeyword(goal.pointer, "maxProperties")
    yield from _property_gaps(prover, constraints, view, goal)
    if goal.has("propertyNames") and not _names_fit(prover, constraints, view, goal.child("propertyNames")):
        yield UnprovenKeyword(goal.pointer, "propertyNames")
    yield from _dependent_gaps(prover, constraints, view, goal)


def is_contradictory(prover: Prover, constraints: Constraints) -> bool:
    """Return whether it is proven that no object satisfies the constraints."""
    most = constraints.most("maxProperties")
    if most is not None and max(constraints.least("minProperties"), len(constraints.required)) > most:
        return True
    if not constraints.required:
        return False
    view = ObjectView(prover, constraints)
    with prover.descend():
        return any(prover.is_empty(view.of_name(name)) for name in constraints.required)


def _property_gaps(
    prover: Prover, constraints: Constraints, view: ObjectView, goal: Subschema
) -> Iterator[UnprovenKeyword]:
    asked = [word for word in ("properties", "patternProperties", "additionalProperties") if goal.has(word)]
    if not asked and not goal.has("unevaluatedProperties"):
        return
    sure = (
        _surely_evaluates(prover, constraints, goal)
        if goal.has("unevaluatedProperties")
        else EvaluatedProperties(open=True)
    )
    for name in sorted(view.names | set(goal.schema.get("properties", ())) | sure.names):
        prover.budget.spend()
        for wanted in _property_goals(prover, goal, sure, name):
            yield from _part_gaps(
                prover, view.of_name(name), wanted, UnprovenKeyword(f"{goal.pointer}/properties", "gone", name)
            )
    own = set(goal.schema.get("patternProperties", ()))
    for pattern in sorted(own):
        yield from _part_gaps(prover, view.of_pattern(pattern), goal.child("patternProperties", pattern))
    for pattern in sorted(view.patterns - own):
        if goal.has("additionalProperties"):
            yield from _part_gaps(prover, view.of_pattern(pattern), goal.child("additionalProperties"))
        if not sure.open and pattern not in sure.patterns:
            yield from _part_gaps(prover, view.of_pattern(pattern), goal.child("unevaluatedProperties"))
    if goal.has("additionalProperties"):
        yield from _part_gaps(prover, view.of_others(), goal.child("additionalProperties"))
    if not sure.open:
        yield from _part_gaps(prover, view.of_others(), goal.child("unevaluatedProperties"))


def _property_goals(prover: Prover, goal: Subschema, sure: EvaluatedProperties, name: str) -> Iterable[Subschema]:
    asked = list(applicable(goal, name, prover.evaluation.matches))
    if not sure.covers(prover, name):
        asked.append(goal.child("unevaluatedProperties"))
    return asked


def _part_gaps(
    prover: Prover, given: tuple[Subschema, ...], wanted: Subschema, gone: UnprovenKeyword | None = None
) -> Iterator[UnprovenKeyword]:
    with prover.descend():
        gaps = prover.gaps(given, wanted)
    if gaps and wanted.impossible:
        # A schema that rejects everything has no keyword to report.
        parent, _, keyword = wanted.pointer.rpartition("/")
        gaps = (gone or UnprovenKeyword(parent, keyword),)
    yield from gaps


def _names_fit(prover: Prover, constraints: Constraints, view: ObjectView, wanted: Subschema) -> bool:
    given = [atom.child("propertyNames") for atom in constraints.atoms if atom.has("propertyNames")]
    with prover.descend():
        if prover.proven((*given, wanted.sibling(_STRING)), wanted):
            return True
        names = view.possible_names()
    return names is not None and all(prover.evaluation.is_valid(wanted, name) is True for name in names)


def _dependent_gaps(
    prover: Prover, constraints: Constraints, view: ObjectView, goal: Subschema
) -> Iterator[UnprovenKeyword]:
    for name, needed in goal.schema.get("dependentRequired", {}).items():
        if not set(needed) <= constraints.required_with((name,)) and not _absent(prover, view, name):
            yield UnprovenKeyword(goal.pointer, "dependentRequired", name)
    for name, wanted in goal.children_by_name("dependentSchemas").items():
        if not _absent(prover, view, name):
            yield from prover.gaps((*constraints.atoms, prover.requiring(goal, name)), wanted, OBJECT)


def _absent(prover: Prover, view: ObjectView, name: str) -> bool:
    with prover.descend():
        return prover.is_empty(view.of_name(name))


def _may_evaluate(atom: Subschema) -> EvaluatedProperties:
    """Return an upper bound of the properties that an atom evaluates."""
    evaluated = EvaluatedProperties()
    for schema in atom.document.in_place(atom.schema):
        evaluated.add(atom.sibling(schema))
        nested = schema is not atom.schema and "unevaluatedProperties" in schema
        evaluated.open |= nested or "$dynamicRef" in schema
    return evaluated


def _surely_evaluates(prover: Prover, constraints: Constraints, goal: Subschema) -> EvaluatedProperties:
    """Return a lower bound of the properties that a goal evaluates, assuming that its other keywords are proven."""
    evaluated, waiting, seen = EvaluatedProperties(), [goal], set[tuple[int, int]]()
    while waiting:
        subschema = waiting.pop()
        if subschema.key in seen:
            continue
        seen.add(subschema.key)
        evaluated.add(subschema)
        evaluated.open |= subschema is not goal and subschema.has("unevaluatedProperties")
        waiting.extend(_surely_applied(prover, constraints, subschema))
    return evaluated


def _surely_applied(prover: Prover, constraints: Constraints, subschema: Subschema) -> Iterator[Subschema]:
    yield from subschema.children("allOf")
    target = subschema.ref_target()
    if target is not None:
        yield target
    for keyword in ("anyOf", "oneOf"):
        yield from (child for child in subschema.children(keyword) if prover.proven(constraints.atoms, child, OBJECT))
    if subschema.has("if"):
        condition = subschema.child("if")
        if prover.proven(constraints.atoms, condition, OBJECT):
            yield condition
            yield subschema.sibling(as_schema(subschema.schema.get("then", True)))
        elif prover.is_empty((*constraints.atoms, condition), OBJECT):
            yield subschema.sibling(as_schema(subschema.schema.get("else", True)))
    for name, child in subschema.children_by_name("dependentSchemas").items():
        if name in constraints.required:
            yield child
