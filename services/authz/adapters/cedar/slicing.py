"""Policy slicing: splits a policy set so that a request is evaluated only against policies that could apply.

Policies are grouped by a value that they require of the principal or the resource. Cedar's decision about a set follows
from its responses for the slices: a matching forbid decides, then a matching permit. A slice is skipped only if each of
its policies would evaluate to false before any expression in it could fail.

All policies of a slice read the same attributes, so a cached response stays valid until one of those attributes
changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import cedarpy
import orjson

from services.authz.adapters.cedar.annotations import INVOKE, WITHOUT_APPROVAL
from services.authz.adapters.cedar.attribute_usage import CacheKeyFunction, ParsedPolicy, attributes_used, cache_key_for
from services.authz.adapters.cedar.context_usage import may_fail
from services.authz.adapters.cedar.entities import (
    EntitiesBuilder,
    RequestsBuilder,
    entities_builder,
    principal_uid,
    requests_builder,
    resource_uid,
)
from services.authz.domain.model import DecisionRequest

IndexKey = tuple[str, str]
"""An attribute and the value that a policy requires it to have or to contain."""

# Up to this many policies, one slice is evaluated faster than several.
UNSLICED_POLICIES = 16
# Attributes that policies are indexed by, and their values in a request.
_EQUAL: Mapping[str, Callable[[DecisionRequest], str]] = {
    "principal": lambda request: _uid(principal_uid(request.caller)),
    "principal.subject": attrgetter("caller.subject"),
    "principal.tenant": attrgetter("caller.tenant"),
    "resource": lambda request: _uid(resource_uid(request.call)),
    "resource.namespace": attrgetter("call.tool.namespace"),
    "resource.tool_id": attrgetter("call.tool.tool_id"),
    "resource.version": lambda request: str(request.call.version),
}
_CONTAINS: Mapping[str, Callable[[DecisionRequest], Collection[str]]] = {
    "principal.groups": attrgetter("caller.groups"),
    "principal.scopes": attrgetter("caller.scopes"),
    "resource.tags": attrgetter("call.tags"),
    "resource.required_permissions": attrgetter("call.required_permissions"),
    "resource.result_labels": attrgetter("call.result_labels"),
}
_ACTIONS = (INVOKE, WITHOUT_APPROVAL)


@dataclass(frozen=True, eq=False)
class PolicySlice:
    """Compiled policies of a set that are evaluated together."""

    names: Mapping[str, str]
    """Names in the set, by the names that Cedar assigns in this slice."""
    policies: cedarpy.PolicySet
    actions: tuple[str, ...]
    """The actions that the policies are about."""
    cache_key: CacheKeyFunction
    """IndexKey of a cached response, if the policies read no per-call context."""
    build_entities: EntitiesBuilder
    """Builds the entities with the attributes that the policies read."""
    build_requests: RequestsBuilder
    """Builds Cedar requests, if the policies read no per-call context."""


CompileSlice = Callable[[Mapping[str, ParsedPolicy]], PolicySlice]


class PolicyIndex:
    """The slices of a policy set by the attribute value that they require."""

    def __init__(
        self,
        policies: Mapping[str, ParsedPolicy],
        compile_policies: CompileSlice,
        *,
        unsliced: int = UNSLICED_POLICIES,
    ) -> None:
        keys = dict.fromkeys(policies) if len(policies) <= unsliced else _choose_rarest_keys(policies)
        members: dict[tuple[IndexKey | None, frozenset[str]], list[str]] = {}
        for name, key in keys.items():
            members.setdefault((key, attributes_used(policies[name])), []).append(name)
        self._unkeyed: list[PolicySlice] = []
        self._by_key: dict[str, dict[str, list[PolicySlice]]] = {}
        for (key, _), names in members.items():
            policy_slice = compile_policies({name: policies[name] for name in names})
            if key is None:
                self._unkeyed.append(policy_slice)
            else:
                self._by_key.setdefault(key[0], {}).setdefault(key[1], []).append(policy_slice)
        self._equal = [(_EQUAL[path], by_value) for path, by_value in self._by_key.items() if path in _EQUAL]
        self._contains = [(_CONTAINS[path], by_value) for path, by_value in self._by_key.items() if path in _CONTAINS]

    def relevant(self, request: DecisionRequest) -> list[PolicySlice]:
        """Return every slice that could match this caller and tool, without duplicates."""
        slices = self._unkeyed.copy()
        for get_value, by_value in self._equal:
            slices += by_value.get(get_value(request), ())
        for get_values, by_value in self._contains:
            for value in get_values(request):
                slices += [candidate for candidate in by_value.get(value, ()) if candidate not in slices]
        return slices

    @property
    def slices(self) -> list[PolicySlice]:
        """All slices of the set."""
        keyed = (one for by_value in self._by_key.values() for slices in by_value.values() for one in slices)
        return [*self._unkeyed, *keyed]


def compile_slice(policies: Mapping[str, ParsedPolicy], texts: Mapping[str, str]) -> PolicySlice:
    """Compile policies from their source text. Cedar numbers them in order."""
    source = "\n".join(texts[name] for name in policies)
    names = {f"policy{index}": name for index, name in enumerate(policies)}
    return _build_slice(names, cedarpy.PolicySet.from_str(source, release_gil=True), policies)


def compile_parsed_slice(policies: Mapping[str, ParsedPolicy]) -> PolicySlice:
    """Compile policies from their JSON format, such as widened policies, which have no source text."""
    document = orjson.dumps({"staticPolicies": dict(policies), "templates": {}, "templateLinks": []}).decode()
    names = {name: name for name in policies}
    return _build_slice(names, cedarpy.PolicySet.from_json_str(document, release_gil=True), policies)


def _build_slice(
    names: Mapping[str, str], parsed: cedarpy.PolicySet, policies: Mapping[str, ParsedPolicy]
) -> PolicySlice:
    attributes = frozenset[str]().union(*map(attributes_used, policies.values()))
    actions = _actions_of(policies)
    return PolicySlice(
        names=names,
        policies=parsed,
        actions=actions,
        cache_key=cache_key_for(attributes),
        build_entities=entities_builder(attributes),
        build_requests=requests_builder(attributes, actions),
    )


def _actions_of(policies: Mapping[str, ParsedPolicy]) -> tuple[str, ...]:
    named = {action for policy in policies.values() for action in _actions(policy)}
    return tuple(action for action in _ACTIONS if action in named)


def _actions(policy: ParsedPolicy) -> tuple[str, ...]:
    scope = policy["action"]
    return (scope["entity"]["id"],) if scope["op"] == "==" else _ACTIONS


def _choose_rarest_keys(policies: Mapping[str, ParsedPolicy]) -> dict[str, IndexKey | None]:
    """Choose for each policy the required value that the fewest policies share."""
    required = {name: list(_required_keys(policy)) for name, policy in policies.items()}
    counts = Counter(key for keys in required.values() for key in keys)
    return {name: min(keys, key=lambda key: counts[key], default=None) for name, keys in required.items()}


def _required_keys(policy: ParsedPolicy) -> Iterator[IndexKey]:
    """Yield the values that must be present for a policy to match or to fail."""
    for variable in ("principal", "resource"):
        scope = policy[variable]
        if scope["op"] == "==" and "entity" in scope:
            yield variable, _uid(scope["entity"])
    for condition in policy["conditions"]:
        # Cedar evaluates from left to right until one is false. A key after an expression that may fail is not safe.
        leaves = _conjuncts(condition["body"]) if condition["kind"] == "when" else iter([condition["body"]])
        for leaf in leaves:
            if condition["kind"] == "when" and (key := _required_key(leaf)) is not None:
                yield key
            if may_fail(leaf):
                return


def _conjuncts(expression: Any) -> Iterator[Any]:
    """Yield the operands of nested `&&`, in the order of evaluation."""
    if isinstance(expression, dict) and "&&" in expression:
        yield from _conjuncts(expression["&&"]["left"])
        yield from _conjuncts(expression["&&"]["right"])
    else:
        yield expression


def _required_key(leaf: Any) -> IndexKey | None:
    operator, operands = next(iter(leaf.items()))
    if operator == "contains":
        path, value = _path(operands["left"]), operands["right"].get("Value")
        return (path, value) if path in _CONTAINS and isinstance(value, str) else None
    if operator != "==":
        return None
    for left, right in ((operands["left"], operands["right"]), (operands["right"], operands["left"])):
        value = right.get("Value")
        if left.get("Var") in ("principal", "resource") and isinstance(value, dict) and "__entity" in value:
            return left["Var"], _uid(value["__entity"])
        if _path(left) in _EQUAL and isinstance(value, str):
            return _path(left), value
    return None


def _path(expression: Any) -> str:
    access = expression.get(".")
    if not isinstance(access, dict):
        return ""
    return f"{access['left'].get('Var')}.{access['attr']}"


def _uid(entity: Mapping[str, str]) -> str:
    return f"{entity['type']}::{entity['id']}"
