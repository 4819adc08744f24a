"""The combined constraints of several schemas on one value.

Constraints may be weaker than the schemas but never stronger, so proofs from them are sound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from services.registry.domain.compatibility.proof.subschema import Subschema
from services.registry.domain.compatibility.proof.values import KINDS, identity, kind_of, kinds_of

# How often a required property may add another schema that requires another one. Fewer constraints are still sound.
_MOST_ROUNDS = 16


@dataclass(frozen=True)
class Bound:
    """One end of a range of numbers."""

    at: Any
    exclusive: bool


@dataclass(frozen=True, eq=False)
class Constraints:
    """Schemas that all apply, with `allOf` and `$ref` expanded into separate schemas."""

    atoms: tuple[Subschema, ...]

    @cached_property
    def key(self) -> frozenset[tuple[int, int]]:
        return frozenset(atom.key for atom in self.atoms)

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds that the value may have."""
        kinds = KINDS
        for atom in self.atoms:
            if atom.has("type"):
                kinds &= kinds_of(atom.get("type"))
        return kinds

    @cached_property
    def values(self) -> tuple[Any, ...] | None:
        """All possible values, where schemas list them; None otherwise."""
        listed = [_listed(atom) for atom in self.atoms if atom.has("enum") or atom.has("const")]
        if not listed:
            return None
        shared = set.intersection(*({identity(value) for value in values} for values in listed))
        possible = {identity(value): value for value in listed[0] if identity(value) in shared}
        return tuple(value for value in possible.values() if kind_of(value) in self.kinds)

    @cached_property
    def required(self) -> frozenset[str]:
        """The properties that an object must have."""
        return self.required_with(())

    def required_with(self, names: Iterable[str]) -> frozenset[str]:
        """Return the properties that an object must have if it has these."""
        names_required = set[str]()
        waiting = [*names, *(name for atom in self.atoms for name in atom.schema.get("required", ()))]
        chains = [chain for atom in self.atoms if (chain := atom.schema.get("dependentRequired"))]
        while waiting:
            name = waiting.pop()
            if name not in names_required:
                names_required.add(name)
                waiting.extend(needed for chain in chains for needed in chain.get(name, ()))
        return frozenset(names_required)

    def lower(self, kind: str) -> Bound | None:
        """Return the lowest possible number; None without a bound."""
        ends = [
            *(Bound(atom.get("minimum"), False) for atom in self.atoms if atom.has("minimum")),
            *(Bound(atom.get("exclusiveMinimum"), True) for atom in self.atoms if atom.has("exclusiveMinimum")),
        ]
        if not ends:
            return None
        end = max(ends, key=lambda bound: (bound.at, bound.exclusive))
        if kind != "integer":
            return end
        least = math.ceil(end.at)
        return Bound(least + 1 if end.exclusive and least == end.at else least, False)

    def upper(self, kind: str) -> Bound | None:
        """Return the highest possible number; None without a bound."""
        ends = [
            *(Bound(atom.get("maximum"), False) for atom in self.atoms if atom.has("maximum")),
            *(Bound(atom.get("exclusiveMaximum"), True) for atom in self.atoms if atom.has("exclusiveMaximum")),
        ]
        if not ends:
            return None
        end = min(ends, key=lambda bound: (bound.at, not bound.exclusive))
        if kind != "integer":
            return end
        most = math.floor(end.at)
        return Bound(most - 1 if end.exclusive and most == end.at else most, False)

    def least(self, keyword: str) -> Any:
        """Return the largest lower limit that a keyword sets; 0 without one."""
        return max((atom.get(keyword) for atom in self.atoms if atom.has(keyword)), default=0)

    def most(self, keyword: str) -> Any:
        """Return the smallest upper limit that a keyword sets; None without one."""
        return min((atom.get(keyword) for atom in self.atoms if atom.has(keyword)), default=None)


def keyword_weight(subschema: Subschema) -> int:
    """Return the number of entries in the lists and objects of one schema, to charge for reading it."""
    return sum(len(held) for held in subschema.schema.values() if isinstance(held, list | dict))


def constraints_of(subschemas: Iterable[Subschema]) -> Constraints:
    """Combine schemas that all apply. Unresolvable references add nothing."""
    expanded: dict[tuple[int, int], Subschema] = {}
    waiting, rounds = list(subschemas), 0
    while waiting:
        subschema = waiting.pop()
        if subschema.key in expanded or subschema.trivial:
            continue
        expanded[subschema.key] = subschema
        waiting.extend(subschema.children("allOf"))
        target = subschema.ref_target()
        if target is not None:
            waiting.append(target)
        if not waiting and rounds < _MOST_ROUNDS:
            rounds += 1
            waiting.extend(_dependent(Constraints(tuple(expanded.values()))))
    return Constraints(tuple(expanded.values()))


def _dependent(constraints: Constraints) -> Iterable[Subschema]:
    if constraints.kinds != frozenset({"object"}):
        return ()
    pairs = [
        (name, child) for atom in constraints.atoms for name, child in atom.children_by_name("dependentSchemas").items()
    ]
    return [child for name, child in pairs if name in constraints.required and child.key not in constraints.key]


def _listed(atom: Subschema) -> list[Any]:
    listed: list[Any] = atom.get("enum") if atom.has("enum") else [atom.get("const")]
    return listed
