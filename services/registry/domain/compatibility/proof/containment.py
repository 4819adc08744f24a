"""Proves that every value which satisfies some schemas satisfies another one.

If no proof is found, only the place where it stopped is known. Each claim is about all values and is proven by
induction on their size: while a claim is being proven for a value, it may be assumed for parts of the value. This
allows recursive schemas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from libs.common.json.schema_shape import Schema
from services.registry.domain.compatibility.proof import arrays, objects, scalars
from services.registry.domain.compatibility.proof.budget import Budget
from services.registry.domain.compatibility.proof.emptiness import EmptinessProver
from services.registry.domain.compatibility.proof.evaluation import ValueEvaluator
from services.registry.domain.compatibility.proof.prover import INDEPENDENT
from services.registry.domain.compatibility.proof.schema_equality import SchemaEquality
from services.registry.domain.compatibility.proof.subschema import SchemaDocument, Subschema
from services.registry.domain.compatibility.proof.unproven_keyword import UnprovenKeyword
from services.registry.domain.compatibility.proof.value_constraints import Constraints, constraints_of, keyword_weight
from services.registry.domain.compatibility.proof.values import KINDS, kind_of, kinds_of
from services.registry.domain.ports import SchemaChecker

# Integers between close bounds are few enough to be tried one by one.
_FEW = 32
_MOST_BRANCHES = 16
_CONDITION = ("if", "then", "else")


def containment_gaps(
    checker: SchemaChecker, budget: Budget, narrower: Schema, wider: Schema
) -> tuple[UnprovenKeyword, ...]:
    """Return where the proof stops that one schema accepts only values which the other accepts; empty when proven.
    Raises OverBudgetError when the search takes too long."""
    # Charged before the schemas are read, because callers may repeat this for many parts of one schema.
    budget.spend()
    given, goal = SchemaDocument(narrower), SchemaDocument(wider)
    budget.spend((given.size + goal.size) // 16)
    if given.circular or goal.circular:
        return (UnprovenKeyword("", "$ref"),)
    return ContainmentProver(checker, budget).gaps((given.root_subschema,), goal.root_subschema)


@dataclass(frozen=True, slots=True)
class CaseSplit:
    """A case distinction: the value satisfies at least one of the branches."""

    key: tuple[int, int, str]
    branches: tuple[tuple[Subschema, ...], ...]


class ContainmentProver:
    """Searches for proofs within one budget, and caches the results."""

    def __init__(self, checker: SchemaChecker, budget: Budget) -> None:
        self.budget = budget
        self.evaluation = ValueEvaluator(checker, budget)
        self.equality = SchemaEquality(budget)
        self._emptiness = EmptinessProver(self)
        self._constraints: dict[tuple[tuple[int, int], ...], Constraints] = {}
        self._found: dict[Any, tuple[UnprovenKeyword, ...]] = {}
        self._open: dict[Any, tuple[int, int]] = {}
        self._made: dict[Any, dict[str, Any]] = {}
        self._depth = self._level = 0
        # The outermost claim that the current proof assumes. Results that depend on an open claim are not cached.
        self.assumed = INDEPENDENT

    def gaps(
        self,
        given: tuple[Subschema, ...],
        goal: Subschema,
        kinds: frozenset[str] = KINDS,
        spent: frozenset[tuple[int, int, str]] = frozenset(),
    ) -> tuple[UnprovenKeyword, ...]:
        """Return where the proof stops that values which satisfy all of `given` satisfy the goal; empty when proven."""
        self.budget.spend()
        if goal.trivial:
            return ()
        constraints = self.constraints(given)
        kinds &= constraints.kinds
        if not kinds or any(self.equality.equal(atom, goal) for atom in constraints.atoms):
            return ()
        key = (constraints.key, goal.key, kinds, spent)
        if key in self._found:
            return self._found[key]
        if key in self._open:
            return self._assume(key, goal)
        return self._prove(key, constraints, goal, kinds, spent)

    def proven(self, given: tuple[Subschema, ...], goal: Subschema, kinds: frozenset[str] = KINDS) -> bool:
        """Return whether it is proven that values which satisfy all of `given` satisfy the goal."""
        return not self.gaps(given, goal, kinds)

    def is_empty(self, given: tuple[Subschema, ...], kinds: frozenset[str] = KINDS) -> bool:
        """Return whether it is proven that no value of these kinds satisfies all of `given`."""
        return self._emptiness.is_empty(given, kinds)

    def constraints(self, given: tuple[Subschema, ...]) -> Constraints:
        """Return the constraints on values that satisfy all of `given`."""
        key = tuple(subschema.key for subschema in given)
        if key not in self._constraints:
            self._constraints[key] = constraints_of(given)
            # Large lists cost more than one step.
            self.budget.spend(1 + sum(keyword_weight(atom) for atom in self._constraints[key].atoms) // 16)
        return self._constraints[key]

    def negation_of(self, subschema: Subschema) -> Subschema:
        """Return the negation of a subschema; the same object for the same subschema."""
        return subschema.sibling(self._made.setdefault((subschema.key, "not"), {"not": subschema.schema}))

    def requiring(self, subschema: Subschema, name: str) -> Subschema:
        """Return the subschema of objects that have a property; the same object for the same name."""
        schema = {"type": "object", "required": [name]}
        return subschema.sibling(self._made.setdefault((subschema.key, "has", name), schema))

    @contextmanager
    def descend(self) -> Iterator[None]:
        """Continue with a part of the value, for which open claims may be assumed."""
        self._level += 1
        try:
            yield
        finally:
            self._level -= 1

    def _assume(self, key: Any, goal: Subschema) -> tuple[UnprovenKeyword, ...]:
        level, index = self._open[key]
        if self._level == level:
            # Assuming the same claim for the same value would be circular.
            return (UnprovenKeyword(goal.pointer, "$ref"),)
        self.assumed = min(self.assumed, index)
        return ()

    def _prove(
        self,
        key: Any,
        constraints: Constraints,
        goal: Subschema,
        kinds: frozenset[str],
        spent: frozenset[tuple[int, int, str]],
    ) -> tuple[UnprovenKeyword, ...]:
        index = len(self._open)
        self._open[key] = (self._level, index)
        outer, self.assumed = self.assumed, INDEPENDENT
        self._depth += 1
        self.budget.check_depth(self._depth)
        try:
            gaps = self._search(constraints, goal, kinds, spent)
        finally:
            self._depth -= 1
            del self._open[key]
        if gaps or self.assumed >= index:
            self._found[key] = gaps
        self.assumed = min(outer, self.assumed if self.assumed < index else INDEPENDENT)
        return gaps

    def _search(
        self, constraints: Constraints, goal: Subschema, kinds: frozenset[str], spent: frozenset[tuple[int, int, str]]
    ) -> tuple[UnprovenKeyword, ...]:
        if constraints.values is not None:
            return self._value_gaps(constraints, constraints.values, goal, kinds)
        unproven: dict[UnprovenKeyword, None] = {}
        for kind in sorted(kinds):
            gaps = self._kind_gaps(constraints, goal, kind, spent)
            if gaps and not self._proven_by_cases(constraints, goal, kind, spent):
                unproven.update(dict.fromkeys(gaps))
        return tuple(unproven)

    def _proven_by_cases(
        self, constraints: Constraints, goal: Subschema, kind: str, spent: frozenset[tuple[int, int, str]]
    ) -> bool:
        """Try indirect proofs: no value satisfies the constraints, or the goal holds in every case."""
        only = frozenset({kind})
        if self.is_empty(constraints.atoms, only):
            return True
        few = _few_integers(constraints) if kind == "integer" else None
        if few is not None:
            return not self._value_gaps(constraints, few, goal, only)
        split = next((s for s in self.splits(constraints) if s.key not in spent), None)
        if split is None:
            return False
        taken = spent | {split.key}
        return all(not self.gaps((*constraints.atoms, *branch), goal, only, taken) for branch in split.branches)

    def _value_gaps(
        self, constraints: Constraints, values: Iterable[Any], goal: Subschema, kinds: frozenset[str]
    ) -> tuple[UnprovenKeyword, ...]:
        for value in values:
            if kind_of(value) not in kinds or self._emptiness.excluded(constraints, value):
                continue
            if self.evaluation.is_valid(goal, value) is not True:
                return (_listing(goal),)
        return ()

    def _kind_gaps(
        self, constraints: Constraints, goal: Subschema, kind: str, spent: frozenset[tuple[int, int, str]]
    ) -> tuple[UnprovenKeyword, ...]:
        schema = goal.schema
        if "type" in schema and kind not in kinds_of(schema["type"]):
            return (UnprovenKeyword(goal.pointer, "type"),)
        if kind in ("null", "boolean"):
            return self._value_gaps(constraints, (None,) if kind == "null" else (True, False), goal, frozenset({kind}))
        gaps = [*self._plain_gaps(constraints, goal), *self._combined_gaps(constraints, goal, kind, spent)]
        if kind == "object":
            gaps += objects.gaps(self, constraints, goal)
        elif kind == "array":
            gaps += arrays.gaps(self, constraints, goal)
        elif kind == "string":
            gaps += scalars.string_gaps(constraints, goal)
        else:
            gaps += scalars.number_gaps(constraints, goal, kind)
        return tuple(gaps)

    def _plain_gaps(self, constraints: Constraints, goal: Subschema) -> Iterator[UnprovenKeyword]:
        for keyword in ("enum", "const"):
            if goal.has(keyword):
                # Constraints that list their values never reach this code.
                yield UnprovenKeyword(goal.pointer, keyword)
        for keyword in ("$dynamicRef", "dependencies"):
            if goal.has(keyword):
                yield UnprovenKeyword(goal.pointer, keyword)

    def _combined_gaps(
        self, constraints: Constraints, goal: Subschema, kind: str, spent: frozenset[tuple[int, int, str]]
    ) -> Iterator[UnprovenKeyword]:
        only, given = frozenset({kind}), constraints.atoms
        parts = list(goal.children("allOf"))
        if goal.has("$ref"):
            target = goal.ref_target()
            if target is None:
                yield UnprovenKeyword(goal.pointer, "$ref")
            else:
                parts.append(target)
        for part in parts:
            yield from self.gaps(given, part, only, spent)
        if self._changed(constraints, goal, "anyOf") and all(
            self.gaps(given, child, only, spent) for child in goal.children("anyOf")
        ):
            yield UnprovenKeyword(goal.pointer, "anyOf")
        if self._changed(constraints, goal, "oneOf") and not self._exactly_one(given, goal, only):
            yield UnprovenKeyword(goal.pointer, "oneOf")
        if self._changed(constraints, goal, "not") and not self.is_empty((*given, goal.child("not")), only):
            yield UnprovenKeyword(goal.pointer, "not")
        if self._changed(constraints, goal, *_CONDITION) and not self._conditional(given, goal, only):
            yield UnprovenKeyword(goal.pointer, "if")

    def _changed(self, constraints: Constraints, goal: Subschema, *keywords: str) -> bool:
        """Return whether the goal has the first keyword and no constraint has equal values for all keywords."""
        if not goal.has(keywords[0]):
            return False
        return not any(
            all(self.equality.equal_keyword(atom, goal, word) for word in keywords) for atom in constraints.atoms
        )

    def _exactly_one(self, given: tuple[Subschema, ...], goal: Subschema, only: frozenset[str]) -> bool:
        children = goal.children("oneOf")
        chosen = next((child for child in children if self.proven(given, child, only)), None)
        if chosen is None:
            return False
        return all(self.is_empty((*given, other), only) for other in children if other.pointer != chosen.pointer)

    def _conditional(self, given: tuple[Subschema, ...], goal: Subschema, only: frozenset[str]) -> bool:
        condition = goal.child("if")
        unless = self.negation_of(condition)
        return (not goal.has("then") or self.proven((*given, condition), goal.child("then"), only)) and (
            not goal.has("else") or self.proven((*given, unless), goal.child("else"), only)
        )

    def splits(self, constraints: Constraints) -> Iterator[CaseSplit]:
        """Yield the case distinctions that the constraints allow."""
        for atom in constraints.atoms:
            if len(atom.schema.get("anyOf", ())) in range(1, _MOST_BRANCHES):
                yield CaseSplit((*atom.key, "anyOf"), tuple((child,) for child in atom.children("anyOf")))
            if len(atom.schema.get("oneOf", ())) in range(1, _MOST_BRANCHES):
                yield CaseSplit((*atom.key, "oneOf"), tuple(self._one_of(atom)))
            if atom.has("if"):
                yield CaseSplit((*atom.key, "if"), self._cases(atom))

    def _one_of(self, atom: Subschema) -> Iterator[tuple[Subschema, ...]]:
        children = atom.children("oneOf")
        for child in children:
            others = (other for other in children if other.pointer != child.pointer)
            yield (child, *(self.negation_of(other) for other in others))

    def _cases(self, atom: Subschema) -> tuple[tuple[Subschema, ...], ...]:
        condition = atom.child("if")
        then = (atom.child("then"),) if atom.has("then") else ()
        otherwise = (atom.child("else"),) if atom.has("else") else ()
        return ((condition, *then), (self.negation_of(condition), *otherwise))


def _few_integers(constraints: Constraints) -> range | None:
    low, high = constraints.lower("integer"), constraints.upper("integer")
    if low is None or high is None or high.at - low.at > _FEW:
        return None
    return range(low.at, high.at + 1)


def _listing(goal: Subschema) -> UnprovenKeyword:
    """Return the gap for a rejected value, as precise as a local look at the goal allows."""
    subschema, followed = goal, 0
    while (target := subschema.ref_target()) is not None and followed < _FEW:
        subschema, followed = target, followed + 1
    words = ("enum", "const", "type", "not", "oneOf", "anyOf")
    return UnprovenKeyword(subschema.pointer, next((word for word in words if subschema.has(word)), "value"))
