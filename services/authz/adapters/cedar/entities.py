"""A question in Cedar's terms: the caller and the tool as entities, and the context."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import orjson

from libs.common.auth.identity import Identity
from libs.common.json.canonical import canonical
from libs.common.json.jsonio import parse_object
from services.authz.domain.model import CallFacts, Fact, Question

# A policy reads arguments one by one; a call with more of them than this cannot be asked about.
MAX_ARGUMENTS = 2_000
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_KINDS = {"user": "User", "agent": "Agent", "service": "Service"}
_NO_ARGUMENTS: dict[str, Any] = {}
_PRINCIPAL: dict[str, Callable[[Identity], Any]] = {
    "subject": lambda caller: caller.subject,
    "tenant": lambda caller: caller.tenant,
    "trust_level": lambda caller: caller.trust_level,
    "groups": lambda caller: list(caller.groups),
    "scopes": lambda caller: list(caller.scopes),
}
_RESOURCE: dict[str, Callable[[CallFacts], Any]] = {
    "namespace": lambda call: call.tool.namespace,
    "tool_id": lambda call: call.tool.tool_id,
    "version": lambda call: str(call.version),
    "mutation_class": lambda call: call.mutation_class,
    "required_permissions": lambda call: list(call.required_permissions),
    "tags": lambda call: list(call.tags),
    "impact_scope": lambda call: call.impact_scope,
    "approval_always": lambda call: call.approval_always,
    "trust": lambda call: call.tool_trust,
    "closed_world": lambda call: call.closed_world,
    "result_labels": lambda call: list(call.result_labels),
}
Telling = Callable[[Question], str]
"""Returns entities as JSON."""
Asking = Callable[[Question], list[dict[str, Any]]]
"""Returns requests, one for each action."""
# Stand for the caller and the tool where nobody reads which they are.
_SOMEBODY, _SOMETHING = {"type": "User", "id": ""}, {"type": "Tool", "id": ""}


class TooManyArgumentsError(Exception):
    """The call has more arguments than policy can be told of."""


def principal_uid(caller: Identity) -> dict[str, str]:
    """The name of the caller: who acts, however the token came to be. On whose behalf is an attribute."""
    return {"type": _KINDS[caller.kind], "id": caller.actor}


def resource_uid(call: CallFacts) -> dict[str, str]:
    """The name of the tool."""
    return {"type": "Tool", "id": call.tool.version(str(call.version))}


def principal_of(caller: Identity) -> dict[str, Any]:
    """The caller as an entity."""
    return _entity(principal_uid(caller), _PRINCIPAL.items(), caller)


def resource_of(call: CallFacts) -> dict[str, Any]:
    """The tool as an entity."""
    return _entity(resource_uid(call), _RESOURCE.items(), call)


def telling_of(attributes: Collection[str]) -> Telling:
    """Return what tells Cedar of the caller and the tool, each with no more than these attributes, and not at all without any: what
    nobody reads costs more than the reading."""
    principal = [(name, get) for name, get in _PRINCIPAL.items() if f"principal.{name}" in attributes]
    resource = [(name, get) for name, get in _RESOURCE.items() if f"resource.{name}" in attributes]
    caller_uid, tool_uid = _names_of(attributes)

    def told(question: Question) -> str:
        entities = []
        if principal:
            entities.append(_entity(caller_uid(question), principal, question.caller))
        if resource:
            entities.append(_entity(tool_uid(question), resource, question.call))
        return orjson.dumps(entities).decode()

    return told


def asking_of(attributes: Collection[str], actions: Iterable[str]) -> Asking:
    """Return what puts a question to policies that read no more than these attributes. Where they read nothing that a request holds, it is
    always the same one."""
    named = [action_uid(action) for action in actions]
    caller_uid, tool_uid = _names_of(attributes)

    def asked(question: Question) -> list[dict[str, Any]]:
        common: dict[str, Any] = {"principal": caller_uid(question), "resource": tool_uid(question)}
        if "context" in attributes:
            common["context"] = orjson.dumps({"environment": question.environment}).decode()
        return [{**common, "action": action} for action in named]

    if not {"principal", "resource", "context"}.isdisjoint(attributes):
        return asked
    same = [{"principal": _SOMEBODY, "resource": _SOMETHING, "action": action} for action in named]
    return lambda question: same


def _names_of(attributes: Collection[str]) -> tuple[Callable[[Question], dict[str, str]], ...]:
    """Return how the caller and the tool are named to policies that read no more than these attributes."""
    return (
        (lambda question: principal_uid(question.caller)) if "principal" in attributes else lambda question: _SOMEBODY,
        (lambda question: resource_uid(question.call)) if "resource" in attributes else lambda question: _SOMETHING,
    )


def action_uid(action: str) -> dict[str, str]:
    """The name of an action."""
    return {"type": "Action", "id": action}


def _entity(uid: dict[str, str], attributes: Iterable[tuple[str, Callable[[Any], Any]]], of: Any) -> dict[str, Any]:
    return {"uid": uid, "attrs": {name: get(of) for name, get in attributes}, "parents": []}


def whole_context(question: Question, reads: frozenset[Fact]) -> tuple[str, list[dict[str, Any]]]:
    """Everything, and the entities that it refers to. Arguments and labels that nothing reads are left empty.

    Raises TooManyArgumentsError, and INVALID_JSON for arguments that are none.
    """
    call, moment = question.call, question.moment
    told = parse_object(call.arguments) if Fact.ARGUMENTS in reads else _NO_ARGUMENTS
    text, number, pointers, facts = _flat(told)
    context = {
        "environment": question.environment,
        "session_id": call.session_id,
        "session_labels": sorted(question.labels or ()),
        "arguments_digest": call.arguments_digest,
        "arguments": {
            "text": _uid("TextArguments"),
            "number": _uid("NumberArguments"),
            "pointers": pointers,
            "facts": facts,
        },
        "resources": list(call.resources) if Fact.ARGUMENTS in reads else [],
        "time": {"epoch": int(moment.timestamp()), "hour": moment.hour, "weekday": moment.isoweekday()},
        "risk": _uid("RiskFacts"),
    }
    entities = [
        _tagged("TextArguments", text),
        _tagged("NumberArguments", number),
        _tagged("RiskFacts", dict(call.risk)),
    ]
    return orjson.dumps(context).decode(), entities


def _flat(arguments: dict[str, Any]) -> tuple[dict[str, str], dict[str, int], list[str], list[str]]:
    text: dict[str, str] = {}
    number: dict[str, int] = {}
    pointers: list[str] = []
    facts: dict[str, None] = {}
    for pointer, pattern, value in _leaves(arguments, "", ""):
        pointers.append(pointer)
        if len(pointers) > MAX_ARGUMENTS:
            raise TooManyArgumentsError
        if isinstance(value, dict | list):
            continue
        # In the one form that every equal value has: 7.0 is 7, to the tool and to its digest, and so to policy.
        text[pointer] = value if isinstance(value, str) else canonical(value).decode()
        facts[f"{pattern}={text[pointer]}"] = None
        if isinstance(value, int | float) and not isinstance(value, bool):
            number[pointer] = _whole(value)
    return text, number, pointers, list(facts)


def _leaves(value: Any, pointer: str, pattern: str) -> Iterator[tuple[str, str, Any]]:
    """Everything under a value, with its pointer and the pointer with * for each index."""
    if isinstance(value, dict):
        steps = [(name.replace("~", "~0").replace("/", "~1"), each) for name, each in value.items()]
        for step, each in steps:
            yield f"{pointer}/{step}", f"{pattern}/{step}", each
            yield from _leaves(each, f"{pointer}/{step}", f"{pattern}/{step}")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield f"{pointer}/{index}", f"{pattern}/*", each
            yield from _leaves(each, f"{pointer}/{index}", f"{pattern}/*")


def _whole(value: float) -> int:
    """Away from zero, so that no amount slips under a bound by its fraction; what is too large stays the largest."""
    whole = math.ceil(value) if value > 0 else math.floor(value)
    return min(max(whole, _LOWEST), _HIGHEST)


def _uid(kind: str) -> dict[str, str]:
    return {"type": kind, "id": ""}


def _tagged(kind: str, tags: dict[str, Any]) -> dict[str, Any]:
    return {"uid": _uid(kind), "attrs": {}, "parents": [], "tags": tags}
