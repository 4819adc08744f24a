"""Proves the array keywords of a goal, and contradictions between constraints on arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from services.registry.domain.compatibility.proof.prover import Prover
from services.registry.domain.compatibility.proof.subschema import Subschema
from services.registry.domain.compatibility.proof.unproven_keyword import UnprovenKeyword
from services.registry.domain.compatibility.proof.value_constraints import Constraints

# Keywords next to `unevaluatedItems` that may evaluate items, so that it does not apply to them.
_LOOKING = ("contains", "allOf", "anyOf", "oneOf", "if", "$ref", "$dynamicRef", "dependentSchemas")
_MOST_CONTAINED = 20
_KEYWORDS = frozenset({"minItems", "maxItems", "uniqueItems", "prefixItems", "items", "unevaluatedItems", "contains"})


class ArrayView:
    """The constraints on the items of an array."""

    def __init__(self, constraints: Constraints) -> None:
        self._constraints = constraints
        self.prefix = max((len(atom.schema.get("prefixItems", ())) for atom in constraints.atoms), default=0)
        contained = (atom.schema.get("minContains", 1) for atom in constraints.atoms if atom.has("contains"))
        self.least: Any = max(constraints.least("minItems"), max(contained, default=0))
        ends = [len(atom.schema.get("prefixItems", ())) for atom in constraints.atoms if _closed(atom)]
        limit = constraints.most("maxItems")
        self.most: Any = min([*ends, *([] if limit is None else [limit])], default=None)

    def item(self, index: int) -> tuple[Subschema, ...]:
        """Return the constraints on the item at an index. All items past the longest prefix have the same ones."""
        subschemas = []
        for atom in self._constraints.atoms:
            if index < len(atom.schema.get("prefixItems", ())):
                subschemas.append(atom.child("prefixItems", index))
            elif atom.has("items"):
                subschemas.append(atom.child("items"))
            elif atom.has("unevaluatedItems") and not any(atom.has(word) for word in _LOOKING):
                subschemas.append(atom.child("unevaluatedItems"))
        return tuple(subschemas)

    def may_have(self, index: int) -> bool:
        return self.most is None or index < self.most


def gaps(prover: Prover, constraints: Constraints, goal: Subschema) -> Iterator[UnprovenKeyword]:
    """Yield the array keywords of the goal that are not proven."""
    if not any(keyword in goal.schema for keyword in _KEYWORDS):
        return
    view = ArrayView(constraints)
    if goal.schema.get("minItems", 0) > view.least:
        yield UnprovenKeyword(goal.pointer, "minItems")
    if goal.has("maxItems") and (view.most is None or view.most > goal.get("maxItems")):
        yield UnprovenKeyword(goal.pointer, "maxItems")
    if goal.get("uniqueItems") and not _unique(constraints, view):
        yield UnprovenKeyword(goal.pointer, "uniqueItems")
    yield from _item_gaps(prover, view, goal)
    if goal.has("contains"):
        yield from _contained_gaps(prover, constraints, view, goal)


def is_contradictory(prover: Prover, constraints: Constraints) -> bool:
    """Return whether it is proven that no array satisfies the constraints."""
    view = ArrayView(constraints)
    if view.most is not None and view.least > view.most:
        return True
    last = min(view.least, view.prefix + 1)
    with prover.descend():
        return any(prover.is_empty(view.item(index)) for index in range(int(last)))


def _item_gaps(prover: Prover, view: ArrayView, goal: Subschema) -> Iterator[UnprovenKeyword]:
    own = len(goal.schema.get("prefixItems", ()))
    # One index past every prefix stands for all following items.
    for index in range(max(own, view.prefix) + 1):
        wanted = _item_goal(goal, index, own)
        if wanted is None or not view.may_have(index):
            continue
        with prover.descend():
            gaps = prover.gaps(view.item(index), wanted)
        if gaps and wanted.impossible:
            parent, _, keyword = wanted.pointer.rpartition("/")
            gaps = (UnprovenKeyword(parent, keyword),)
        yield from gaps


def _item_goal(goal: Subschema, index: int, own: int) -> Subschema | None:
    if index < own:
        return goal.child("prefixItems", index)
    # Items that are evaluated elsewhere need not satisfy `unevaluatedItems`; requiring it of all items is stricter.
    keyword = next((word for word in ("items", "unevaluatedItems") if goal.has(word)), None)
    return goal.child(keyword) if keyword else None


def _contained_gaps(
    prover: Prover, constraints: Constraints, view: ArrayView, goal: Subschema
) -> Iterator[UnprovenKeyword]:
    wanted = goal.child("contains")
    least, most = goal.schema.get("minContains", 1), goal.schema.get("maxContains")
    with prover.descend():
        if not _contains_enough(prover, constraints, view, wanted, least):
            yield UnprovenKeyword(goal.pointer, "contains")
        if most is not None and not _contains_few(prover, constraints, view, wanted, most):
            yield UnprovenKeyword(goal.pointer, "maxContains")


def _contains_enough(prover: Prover, constraints: Constraints, view: ArrayView, wanted: Subschema, least: Any) -> bool:
    for atom in constraints.atoms:
        enough = atom.has("contains") and atom.schema.get("minContains", 1) >= least
        if enough and prover.proven((atom.child("contains"),), wanted):
            return True
    if least > min(view.least, _MOST_CONTAINED):
        return False
    return all(prover.proven(view.item(index), wanted) for index in range(int(least)))


def _contains_few(prover: Prover, constraints: Constraints, view: ArrayView, wanted: Subschema, most: Any) -> bool:
    if view.most is not None and view.most <= most:
        return True
    for atom in constraints.atoms:
        few = atom.has("contains") and atom.schema.get("maxContains", most + 1) <= most
        if few and prover.proven((wanted,), atom.child("contains")):
            return True
    return False


def _unique(constraints: Constraints, view: ArrayView) -> bool:
    return any(atom.get("uniqueItems") for atom in constraints.atoms) or (view.most is not None and view.most <= 1)


def _closed(atom: Subschema) -> bool:
    return atom.has("items") and atom.child("items").impossible
