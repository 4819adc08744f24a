"""Proves that no value satisfies a set of schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from services.registry.domain.compatibility.proof import arrays, objects
from services.registry.domain.compatibility.proof.prover import INDEPENDENT, Prover
from services.registry.domain.compatibility.proof.scalars import as_fraction
from services.registry.domain.compatibility.proof.subschema import Subschema
from services.registry.domain.compatibility.proof.value_constraints import Constraints
from services.registry.domain.compatibility.proof.values import KINDS, kind_of


class EmptinessProver:
    """Searches for contradictions with the help of containment proofs."""

    def __init__(self, prover: Prover) -> None:
        self._prover = prover
        self._found: dict[Any, bool] = {}
        self._open: set[Any] = set()

    def is_empty(self, given: tuple[Subschema, ...], kinds: frozenset[str] = KINDS) -> bool:
        """Return whether it is proven that no value of these kinds satisfies all of `given`."""
        prover = self._prover
        prover.budget.spend()
        constraints = prover.constraints(given)
        kinds &= constraints.kinds
        key = (constraints.key, kinds)
        if key in self._open or len(self._open) > 24:
            return False
        if key in self._found:
            return self._found[key]
        outer, prover.assumed = prover.assumed, INDEPENDENT
        self._open.add(key)
        try:
            contradicted = self._search(constraints, kinds)
        finally:
            self._open.discard(key)
        if not contradicted or prover.assumed == INDEPENDENT:
            self._found[key] = contradicted
        prover.assumed = min(outer, prover.assumed)
        return contradicted

    def excluded(self, constraints: Constraints, value: Any) -> bool:
        """Return whether one of the constraints rejects the value."""
        return any(self._prover.evaluation.is_valid(atom, value) is False for atom in constraints.atoms)

    def _search(self, constraints: Constraints, kinds: frozenset[str]) -> bool:
        if constraints.values is not None:
            return all(kind_of(value) not in kinds or self.excluded(constraints, value) for value in constraints.values)
        return all(self._contradicts(constraints, kind) for kind in kinds)

    def _contradicts(self, constraints: Constraints, kind: str) -> bool:
        if any(atom.impossible for atom in constraints.atoms):
            return True
        if kind in ("null", "boolean"):
            return all(self.excluded(constraints, value) for value in ((None,) if kind == "null" else (True, False)))
        if self._of_kind(constraints, kind):
            return True
        only = frozenset({kind})
        forbidden = (atom.child("not") for atom in constraints.atoms if atom.has("not"))
        if any(self._prover.proven(constraints.atoms, negated, only) for negated in forbidden):
            return True
        return any(all(self.is_empty((*constraints.atoms, c), only) for c in cases) for cases in _cases(constraints))

    def _of_kind(self, constraints: Constraints, kind: str) -> bool:
        if kind == "object":
            return objects.is_contradictory(self._prover, constraints)
        if kind == "array":
            return arrays.is_contradictory(self._prover, constraints)
        if kind == "string":
            most = constraints.most("maxLength")
            return most is not None and constraints.least("minLength") > most
        if kind == "fraction" and _whole_steps(constraints):
            return True
        low, high = constraints.lower(kind), constraints.upper(kind)
        if low is None or high is None:
            return False
        return bool(low.at > high.at or (low.at == high.at and (low.exclusive or high.exclusive)))


def _whole_steps(constraints: Constraints) -> bool:
    steps = (as_fraction(atom.get("multipleOf")) for atom in constraints.atoms if atom.has("multipleOf"))
    return any(step.denominator == 1 for step in steps)


def _cases(constraints: Constraints) -> Iterator[tuple[Subschema, ...]]:
    for atom in constraints.atoms:
        for keyword in ("anyOf", "oneOf"):
            if atom.has(keyword):
                yield atom.children(keyword)
