"""Finds the principal and resource attributes that a policy reads, and builds cache keys from them.

Requests with equal values in all attributes that a policy reads get the same response from it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from operator import attrgetter
from typing import Any

from services.authz.domain.model import DecisionRequest

ParsedPolicy = Mapping[str, Any]
"""A policy in Cedar's JSON format."""
CacheKeyFunction = Callable[[DecisionRequest], Hashable]
"""Returns the values of all attributes that some policies read."""

# By components: versions that differ only in their build compare as equal but are different texts.
_VERSION = tuple(f"call.version.{component}" for component in ("major", "minor", "patch", "prerelease", "build"))
_TOOL = ("call.tool.namespace", "call.tool.tool_id")
# The fields of a DecisionRequest behind each Cedar attribute. A bare variable is the UID, without attributes.
_REQUEST_FIELDS: Mapping[str, tuple[str, ...]] = {
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
    "resource.trust_age_hours": ("call.tool_trust_age_hours",),
    "resource.stage": ("call.tool_stage",),
    "resource.publisher_verified": ("call.publisher_verified",),
    "resource.health": ("call.tool_health",),
    "resource.closed_world": ("call.closed_world",),
    "resource.result_labels": ("call.result_labels",),
    # The only part of the context that does not change from call to call.
    "context": ("environment", "granted_by_name", "caller.session_id"),
}
_ENTITY_VARIABLES = frozenset({"principal", "resource"})
_VARIABLES = _ENTITY_VARIABLES | {"context"}
_NONE: frozenset[str] = frozenset()
ALL_ATTRIBUTES = frozenset(_REQUEST_FIELDS)


def cache_key_for(attributes: Iterable[str]) -> CacheKeyFunction:
    """Return the cache key function of policies that read these attributes and no per-call context."""
    fields = sorted({field for attribute in attributes for field in _REQUEST_FIELDS[attribute]})
    return attrgetter(*fields) if fields else _constant_key


def _constant_key(request: DecisionRequest) -> Hashable:
    return None


def attributes_used(policy: ParsedPolicy) -> frozenset[str]:
    """Return the principal and resource attributes that a policy reads; all of them where that cannot be determined."""
    scope = (variable for variable in _ENTITY_VARIABLES if policy[variable]["op"] != "All")
    return _used_by(policy["conditions"]).union(scope)


def _used_by(expression: Any) -> frozenset[str]:
    if isinstance(expression, list):
        return _NONE.union(*(_used_by(item) for item in expression))
    if not isinstance(expression, dict):
        return _NONE
    return _NONE.union(*(_used_by_operator(operator, operands) for operator, operands in expression.items()))


def _used_by_operator(operator: str, operands: Any) -> frozenset[str]:
    if operator == "Var" and isinstance(operands, str):
        return _VARIABLES & {operands}
    if operator in (".", "has") and isinstance(operands, dict) and "attr" in operands:
        return _used_by_access(operands["left"], operands["attr"])
    return _used_by(operands)


def _used_by_access(owner: Any, attribute: str) -> frozenset[str]:
    variable = owner.get("Var")
    if variable in _ENTITY_VARIABLES:
        qualified = f"{variable}.{attribute}"
        return frozenset({qualified}) if qualified in _REQUEST_FIELDS else ALL_ATTRIBUTES
    used = _used_by(owner)
    # The owner may be an alias of the principal or the resource.
    return ALL_ATTRIBUTES if used & _ENTITY_VARIABLES else used
