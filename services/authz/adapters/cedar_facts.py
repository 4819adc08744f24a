"""A question in Cedar's terms: the caller and the tool as entities, and the context."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import orjson

from libs.common.auth.identity import Identity
from libs.common.jsonio import parse_object
from services.authz.domain.model import USER_TIER, CallFacts, Fact, Question

# A policy reads arguments one by one; a call with more of them than this cannot be asked about.
MAX_ARGUMENTS = 2_000
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_KINDS = {USER_TIER: "User", "service": "Service"}
_NO_ARGUMENTS: dict[str, Any] = {}


class TooManyArgumentsError(Exception):
    """The call has more arguments than policy can be told of."""


def principal_uid(caller: Identity) -> dict[str, str]:
    """The name of the caller: a user or a service by itself, everything else as an agent."""
    kind = _KINDS.get(caller.tier, "Agent")
    return {"type": kind, "id": caller.subject if kind != "Agent" else caller.agent or caller.subject}


def resource_uid(call: CallFacts) -> dict[str, str]:
    """The name of the tool."""
    return {"type": "Tool", "id": call.tool.version(str(call.version))}


def principal_of(caller: Identity) -> dict[str, Any]:
    """The caller as an entity."""
    return {
        "uid": principal_uid(caller),
        "attrs": {
            "tenant": caller.tenant,
            "trust_level": caller.trust_level,
            "groups": list(caller.groups),
            "scopes": list(caller.scopes),
        },
        "parents": [],
    }


def resource_of(call: CallFacts) -> dict[str, Any]:
    """The tool as an entity."""
    return {
        "uid": resource_uid(call),
        "attrs": {
            "namespace": call.tool.namespace,
            "tool_id": call.tool.tool_id,
            "version": str(call.version),
            "mutation_class": call.mutation_class,
            "required_permissions": list(call.required_permissions),
            "tags": list(call.tags),
            "impact_scope": call.impact_scope,
            "approval_always": call.approval_always,
            "trust": call.tool_trust,
            "closed_world": call.closed_world,
            "result_labels": list(call.result_labels),
        },
        "parents": [],
    }


def steady_context(question: Question) -> str:
    """What stays the same from call to call."""
    return orjson.dumps({"environment": question.environment}).decode()


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
        text[pointer] = value if isinstance(value, str) else orjson.dumps(value).decode()
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
