"""Which policies are worth asking. A set is cut into parts by what a policy demands of the caller or the tool, so that a question is
only put to parts that could have something to say about it.

Cedar's answer about a set follows from its answers about the parts: one forbid that matches decides, then one permit. A part is left
out only if each of its policies would have been found false before anything in it could fail.

The policies of a part read the same of the caller and the tool, so that what is new in a question is put only to those who read it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol

import cedarpy
import orjson

from services.authz.adapters.cedar.annotations import INVOKE, WITHOUT_APPROVAL
from services.authz.adapters.cedar.attribute_usage import Parsed, Reading, attributes_read, reading_of
from services.authz.adapters.cedar.context_usage import may_fail
from services.authz.adapters.cedar.entities import (
    Asking,
    Telling,
    asking_of,
    principal_uid,
    resource_uid,
    telling_of,
)
from services.authz.domain.model import Question

Key = tuple[str, str]

# Below this many policies, one part is asked faster than several.
SMALL = 16
# What tells callers and tools apart, and where a question has it; all of it is text, or several texts.
_EQUAL: Mapping[str, Callable[[Question], str]] = {
    "principal": lambda question: _uid(principal_uid(question.caller)),
    "principal.subject": attrgetter("caller.subject"),
    "principal.tenant": attrgetter("caller.tenant"),
    "resource": lambda question: _uid(resource_uid(question.call)),
    "resource.namespace": attrgetter("call.tool.namespace"),
    "resource.tool_id": attrgetter("call.tool.tool_id"),
    "resource.version": lambda question: str(question.call.version),
}
_CONTAINS: Mapping[str, Callable[[Question], Collection[str]]] = {
    "principal.groups": attrgetter("caller.groups"),
    "principal.scopes": attrgetter("caller.scopes"),
    "resource.tags": attrgetter("call.tags"),
    "resource.required_permissions": attrgetter("call.required_permissions"),
    "resource.result_labels": attrgetter("call.result_labels"),
}
_ACTIONS = (INVOKE, WITHOUT_APPROVAL)


@dataclass(frozen=True, eq=False)
class Part:
    """Some policies of a set, ready to be asked."""

    names: Mapping[str, str]
    """Their names in the set, by the names that Cedar gives them here."""
    policies: cedarpy.PolicySet
    actions: tuple[str, ...]
    """The actions that any of them is about."""
    reading: Reading
    """What they read of a question, if they read nothing of the call itself."""
    telling: Telling
    """What they must be told of the caller and the tool."""
    asking: Asking
    """How a question is put to them, if they read nothing of the call itself."""


class Compiled(Protocol):
    """Makes a part of some policies of a set."""

    def __call__(self, policies: Mapping[str, Parsed]) -> Part: ...


class PolicyIndex:
    """The parts of a set by what they demand."""

    def __init__(self, policies: Mapping[str, Parsed], compiled: Compiled, *, small: int = SMALL) -> None:
        chosen = dict.fromkeys(policies) if len(policies) <= small else _rarest(policies)
        members: dict[tuple[Key | None, frozenset[str]], list[str]] = {}
        for name, key in chosen.items():
            members.setdefault((key, attributes_read(policies[name])), []).append(name)
        self._always: list[Part] = []
        self._by_key: dict[str, dict[str, list[Part]]] = {}
        for (key, _), names in members.items():
            part = compiled({name: policies[name] for name in names})
            if key is None:
                self._always.append(part)
            else:
                self._by_key.setdefault(key[0], {}).setdefault(key[1], []).append(part)
        self._equal = [(_EQUAL[path], parts) for path, parts in self._by_key.items() if path in _EQUAL]
        self._contains = [(_CONTAINS[path], parts) for path, parts in self._by_key.items() if path in _CONTAINS]

    def relevant(self, question: Question) -> list[Part]:
        """Return every part that could have something to say about this caller and tool, each once."""
        found = self._always.copy()
        for value, parts in self._equal:
            found += parts.get(value(question), ())
        for values, parts in self._contains:
            for each in values(question):
                found += [part for part in parts.get(each, ()) if part not in found]
        return found

    @property
    def parts(self) -> list[Part]:
        """All of them."""
        keyed = (part for parts in self._by_key.values() for some in parts.values() for part in some)
        return [*self._always, *keyed]


def part_of(policies: Mapping[str, Parsed], texts: Mapping[str, str]) -> Part:
    """Compile policies as they are written. Cedar numbers them in their order."""
    source = "\n".join(texts[name] for name in policies)
    names = {f"policy{index}": name for index, name in enumerate(policies)}
    return _part(names, cedarpy.PolicySet.from_str(source, release_gil=True), policies)


def part_of_parsed(policies: Mapping[str, Parsed]) -> Part:
    """Compile policies that nobody wrote."""
    document = orjson.dumps({"staticPolicies": dict(policies), "templates": {}, "templateLinks": []}).decode()
    names = {name: name for name in policies}
    return _part(names, cedarpy.PolicySet.from_json_str(document, release_gil=True), policies)


def _part(names: Mapping[str, str], parsed: cedarpy.PolicySet, policies: Mapping[str, Parsed]) -> Part:
    attributes = frozenset[str]().union(*map(attributes_read, policies.values()))
    actions = _actions_of(policies)
    return Part(names, parsed, actions, reading_of(attributes), telling_of(attributes), asking_of(attributes, actions))


def _actions_of(policies: Mapping[str, Parsed]) -> tuple[str, ...]:
    named = {action for each in policies.values() for action in _actions(each)}
    return tuple(action for action in _ACTIONS if action in named)


def _actions(policy: Parsed) -> tuple[str, ...]:
    scope = policy["action"]
    return (scope["entity"]["id"],) if scope["op"] == "==" else _ACTIONS


def _rarest(policies: Mapping[str, Parsed]) -> dict[str, Key | None]:
    """Choose for each policy the demand that the fewest policies share."""
    demands = {name: list(_demands(policy)) for name, policy in policies.items()}
    counts = Counter(key for keys in demands.values() for key in keys)
    return {name: min(keys, key=lambda key: counts[key], default=None) for name, keys in demands.items()}


def _demands(policy: Parsed) -> Iterator[Key]:
    """What must be so for a policy to match, or to fail."""
    for variable in ("principal", "resource"):
        scope = policy[variable]
        if scope["op"] == "==" and "entity" in scope:
            yield variable, _uid(scope["entity"])
    for condition in policy["conditions"]:
        # They are evaluated from left to right until one is false: behind one that may fail, nothing may be relied on.
        leaves = _conjuncts(condition["body"]) if condition["kind"] == "when" else iter([condition["body"]])
        for leaf in leaves:
            if condition["kind"] == "when" and (key := _demand(leaf)) is not None:
                yield key
            if may_fail(leaf):
                return


def _conjuncts(expression: Any) -> Iterator[Any]:
    """The parts that must all be true, in the order of evaluation."""
    if isinstance(expression, dict) and "&&" in expression:
        yield from _conjuncts(expression["&&"]["left"])
        yield from _conjuncts(expression["&&"]["right"])
    else:
        yield expression


def _demand(leaf: Any) -> Key | None:
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
