"""Proofs that no value at all satisfies some schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from services.registry.domain.compatibility.proof import arrays, objects
from services.registry.domain.compatibility.proof.prover import INDEPENDENT, Prover
from services.registry.domain.compatibility.proof.scalars import exactly
from services.registry.domain.compatibility.proof.subschema import Place
from services.registry.domain.compatibility.proof.value_constraints import Facts
from services.registry.domain.compatibility.proof.values import KINDS, kind_of


class EmptinessProver:
    """Searches for contradictions, with the proofs of containment at hand."""

    def __init__(self, prover: Prover) -> None:
        self._prover = prover
        self._found: dict[Any, bool] = {}
        self._open: set[Any] = set()

    def is_empty(self, given: tuple[Place, ...], kinds: frozenset[str] = KINDS) -> bool:
        """True if it is proven that nothing of these kinds satisfies all of `given`."""
        prover = self._prover
        prover.budget.spend()
        facts = prover.facts(given)
        kinds &= facts.kinds
        key = (facts.key, kinds)
        if key in self._open or len(self._open) > 24:
            return False
        if key in self._found:
            return self._found[key]
        outer, prover.assumed = prover.assumed, INDEPENDENT
        self._open.add(key)
        try:
            found = self._search(facts, kinds)
        finally:
            self._open.discard(key)
        if not found or prover.assumed == INDEPENDENT:
            self._found[key] = found
        prover.assumed = min(outer, prover.assumed)
        return found

    def excluded(self, facts: Facts, value: Any) -> bool:
        """True if one of the facts refuses the value."""
        return any(self._prover.evaluation.holds(atom, value) is False for atom in facts.atoms)

    def _search(self, facts: Facts, kinds: frozenset[str]) -> bool:
        if facts.values is not None:
            return all(kind_of(value) not in kinds or self.excluded(facts, value) for value in facts.values)
        return all(self._contradicts(facts, kind) for kind in kinds)

    def _contradicts(self, facts: Facts, kind: str) -> bool:
        if any(atom.impossible for atom in facts.atoms):
            return True
        if kind in ("null", "boolean"):
            return all(self.excluded(facts, value) for value in ((None,) if kind == "null" else (True, False)))
        if self._of_kind(facts, kind):
            return True
        only = frozenset({kind})
        forbidden = (atom.child("not") for atom in facts.atoms if atom.has("not"))
        if any(self._prover.proven(facts.atoms, each, only) for each in forbidden):
            return True
        return any(all(self.is_empty((*facts.atoms, c), only) for c in cases) for cases in _cases(facts))

    def _of_kind(self, facts: Facts, kind: str) -> bool:
        if kind == "object":
            return objects.contradict(self._prover, facts)
        if kind == "array":
            return arrays.contradict(self._prover, facts)
        if kind == "string":
            most = facts.most("maxLength")
            return most is not None and facts.least("minLength") > most
        if kind == "fraction" and _whole_steps(facts):
            return True
        low, high = facts.lower(kind), facts.upper(kind)
        if low is None or high is None:
            return False
        return bool(low.at > high.at or (low.at == high.at and (low.exclusive or high.exclusive)))


def _whole_steps(facts: Facts) -> bool:
    steps = (exactly(atom.get("multipleOf")) for atom in facts.atoms if atom.has("multipleOf"))
    return any(step.denominator == 1 for step in steps)


def _cases(facts: Facts) -> Iterator[tuple[Place, ...]]:
    for atom in facts.atoms:
        for keyword in ("anyOf", "oneOf"):
            if atom.has(keyword):
                yield atom.children(keyword)
