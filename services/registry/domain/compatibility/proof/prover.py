"""The interface of the containment prover, as the modules for arrays, objects and emptiness use it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from services.registry.domain.compatibility.proof.budget import Budget
from services.registry.domain.compatibility.proof.evaluation import ValueEvaluator
from services.registry.domain.compatibility.proof.subschema import Subschema
from services.registry.domain.compatibility.proof.unproven_keyword import UnprovenKeyword
from services.registry.domain.compatibility.proof.value_constraints import Constraints
from services.registry.domain.compatibility.proof.values import KINDS

# Marks a proof that assumes no open claim.
INDEPENDENT = 1 << 30


class Prover(Protocol):
    """Proves claims about subschemas within one budget."""

    budget: Budget
    evaluation: ValueEvaluator
    assumed: int
    """The outermost open claim that the current proof assumes."""

    def constraints(self, given: tuple[Subschema, ...]) -> Constraints:
        """Return the constraints on values that satisfy all of `given`."""
        ...

    def gaps(
        self, given: tuple[Subschema, ...], goal: Subschema, kinds: frozenset[str] = KINDS
    ) -> tuple[UnprovenKeyword, ...]:
        """Return where the proof stops that values which satisfy all of `given` satisfy the goal; empty when proven."""
        ...

    def proven(self, given: tuple[Subschema, ...], goal: Subschema, kinds: frozenset[str] = KINDS) -> bool:
        """Return whether it is proven that values which satisfy all of `given` satisfy the goal."""
        ...

    def is_empty(self, given: tuple[Subschema, ...], kinds: frozenset[str] = KINDS) -> bool:
        """Return whether it is proven that no value of these kinds satisfies all of `given`."""
        ...

    def requiring(self, subschema: Subschema, name: str) -> Subschema:
        """Return the subschema of objects that have a property; the same object for the same name."""
        ...

    def descend(self) -> AbstractContextManager[None]:
        """Continue with a part of the value, for which open claims may be assumed."""
        ...
