"""What of the caller and the tool policies read. Two questions that are the same in all of it have the same answer, whatever else tells
them apart."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from operator import attrgetter
from typing import Any

from services.authz.domain.model import Question

Parsed = Mapping[str, Any]
Reading = Callable[[Question], Hashable]
"""Returns everything of a question that some policies read."""

# By parts: two versions that differ only in their build are equal, and read differently.
_VERSION = tuple(f"call.version.{part}" for part in ("major", "minor", "patch", "prerelease", "build"))
_TOOL = ("call.tool.namespace", "call.tool.tool_id")
# Where a question has what policies call so. A variable alone is the caller or the tool by name, not what is known of them.
_PLACES: Mapping[str, tuple[str, ...]] = {
    "principal": ("caller.kind", "caller.actor"),
    "principal.subject": ("caller.subject",),
    "principal.tenant": ("caller.tenant",),
    "principal.trust_level": ("caller.trust_level",),
    "principal.groups": ("caller.groups",),
    "principal.scopes": ("caller.scopes",),
    "resource": (*_TOOL, *_VERSION),
    "resource.namespace": _TOOL[:1],
    "resource.tool_id": _TOOL[1:],
    "resource.version": _VERSION,
    "resource.mutation_class": ("call.mutation_class",),
    "resource.required_permissions": ("call.required_permissions",),
    "resource.tags": ("call.tags",),
    "resource.impact_scope": ("call.impact_scope",),
    "resource.approval_always": ("call.approval_always",),
    "resource.trust": ("call.tool_trust",),
    "resource.closed_world": ("call.closed_world",),
    "resource.result_labels": ("call.result_labels",),
    # All that is so of the context whatever the call is.
    "context": ("environment",),
}
_VARIABLES = frozenset({"principal", "resource"})
_NAMED = _VARIABLES | {"context"}
_NOTHING: frozenset[str] = frozenset()
EVERYTHING = frozenset(_PLACES)


def reading_of(attributes: Iterable[str]) -> Reading:
    """Return how to tell questions apart that policies which read these attributes, and nothing of the call itself, may answer
    differently."""
    places = sorted({place for attribute in attributes for place in _PLACES[attribute]})
    return attrgetter(*places) if places else _nothing


def _nothing(question: Question) -> Hashable:
    return None


def attributes_read(policy: Parsed) -> frozenset[str]:
    """Return what a policy reads of the caller and the tool; everything there is where that cannot be told."""
    scope = (variable for variable in _VARIABLES if policy[variable]["op"] != "All")
    return _read(policy["conditions"]).union(scope)


def _read(expression: Any) -> frozenset[str]:
    if isinstance(expression, list):
        return _NOTHING.union(*(_read(item) for item in expression))
    if not isinstance(expression, dict):
        return _NOTHING
    return _NOTHING.union(*(_operands(operator, operands) for operator, operands in expression.items()))


def _operands(operator: str, operands: Any) -> frozenset[str]:
    if operator == "Var" and isinstance(operands, str):
        return _NAMED & {operands}
    if operator in (".", "has") and isinstance(operands, dict) and "attr" in operands:
        return _accessed(operands["left"], operands["attr"])
    return _read(operands)


def _accessed(owner: Any, attribute: str) -> frozenset[str]:
    variable = owner.get("Var")
    if variable in _VARIABLES:
        named = f"{variable}.{attribute}"
        return frozenset({named}) if named in _PLACES else EVERYTHING
    behind = _read(owner)
    # Something that may be the caller or the tool, under another name.
    return EVERYTHING if behind & _VARIABLES else behind
