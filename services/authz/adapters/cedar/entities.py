"""Converts a decision request to Cedar: the caller and the tool as entities, and the context."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import orjson

from libs.common.auth.identity import Identity
from libs.common.json.canonical import canonical
from libs.common.json.json_pointer import pointer_of
from libs.common.json.jsonio import parse_object
from services.authz.adapters.cedar.time_zones import zone_tags
from services.authz.domain.model import CallFacts, ContextField, DecisionRequest

# Calls with more arguments are denied where a policy reads arguments.
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
    "trust_age_hours": lambda call: call.tool_trust_age_hours,
    "stage": lambda call: call.tool_stage,
    "publisher_verified": lambda call: call.publisher_verified,
    "health": lambda call: call.tool_health,
    "closed_world": lambda call: call.closed_world,
    "result_labels": lambda call: list(call.result_labels),
}
EntitiesBuilder = Callable[[DecisionRequest], str]
"""Returns the entities of a request as JSON."""
RequestsBuilder = Callable[[DecisionRequest], list[dict[str, Any]]]
"""Returns Cedar requests, one for each action."""
# Placeholders where no policy reads the UID of the caller or the tool.
_ANY_PRINCIPAL, _ANY_RESOURCE = {"type": "User", "id": ""}, {"type": "Tool", "id": ""}


class TooManyArgumentsError(Exception):
    """The call has more than MAX_ARGUMENTS arguments."""


def principal_uid(caller: Identity) -> dict[str, str]:
    """Return the UID of the caller, which is the actor of the token. The subject is an attribute."""
    return {"type": _KINDS[caller.kind], "id": caller.actor}


def resource_uid(call: CallFacts) -> dict[str, str]:
    """Return the UID of the tool version."""
    return {"type": "Tool", "id": call.tool.version(str(call.version))}


def principal_entity(caller: Identity) -> dict[str, Any]:
    """Return the caller as a Cedar entity."""
    return _entity(principal_uid(caller), _PRINCIPAL.items(), caller)


def resource_entity(call: CallFacts) -> dict[str, Any]:
    """Return the tool as a Cedar entity."""
    return _entity(resource_uid(call), _RESOURCE.items(), call)


def entities_builder(attributes: Collection[str]) -> EntitiesBuilder:
    """Return a builder of the caller and tool entities with only these attributes. Entities without attributes are left
    out: converting an unused attribute costs more than evaluating the policies."""
    principal = [(name, get) for name, get in _PRINCIPAL.items() if f"principal.{name}" in attributes]
    resource = [(name, get) for name, get in _RESOURCE.items() if f"resource.{name}" in attributes]
    caller_uid, tool_uid = _uid_getters(attributes)

    def build(request: DecisionRequest) -> str:
        entities = []
        if principal:
            entities.append(_entity(caller_uid(request), principal, request.caller))
        if resource:
            entities.append(_entity(tool_uid(request), resource, request.call))
        return orjson.dumps(entities).decode()

    return build


def requests_builder(attributes: Collection[str], actions: Iterable[str]) -> RequestsBuilder:
    """Return a builder of Cedar requests for policies that read only these attributes. If they read no UID and no
    context, it always returns the same requests."""
    uids = [action_uid(action) for action in actions]
    caller_uid, tool_uid = _uid_getters(attributes)

    def build(request: DecisionRequest) -> list[dict[str, Any]]:
        common: dict[str, Any] = {"principal": caller_uid(request), "resource": tool_uid(request)}
        if "context" in attributes:
            common["context"] = orjson.dumps(_constant_context(request)).decode()
        return [{**common, "action": action} for action in uids]

    if not {"principal", "resource", "context"}.isdisjoint(attributes):
        return build
    constant = [{"principal": _ANY_PRINCIPAL, "resource": _ANY_RESOURCE, "action": action} for action in uids]
    return lambda request: constant


def _constant_context(request: DecisionRequest) -> dict[str, Any]:
    """Return the attributes of the context that do not change from call to call."""
    return {
        "environment": request.environment,
        "granted_by_name": request.granted_by_name,
        "session_bound": bool(request.caller.session_id),
    }


def _uid_getters(attributes: Collection[str]) -> tuple[Callable[[DecisionRequest], dict[str, str]], ...]:
    """Return functions for the UIDs of the caller and the tool; placeholders where the policies do not read them."""
    return (
        (lambda request: principal_uid(request.caller))
        if "principal" in attributes
        else (lambda request: _ANY_PRINCIPAL),
        (lambda request: resource_uid(request.call)) if "resource" in attributes else (lambda request: _ANY_RESOURCE),
    )


def action_uid(action: str) -> dict[str, str]:
    """Return the UID of an action."""
    return {"type": "Action", "id": action}


def _entity(uid: dict[str, str], attributes: Iterable[tuple[str, Callable[[Any], Any]]], of: Any) -> dict[str, Any]:
    return {"uid": uid, "attrs": {name: get(of) for name, get in attributes}, "parents": []}


def full_context(
    request: DecisionRequest, context_fields: frozenset[ContextField], zones: Collection[str] = ()
) -> tuple[str, list[dict[str, Any]]]:
    """Return the whole context, with the time in these zones, and the entities that it refers to. Unread arguments are
    left empty.

    Raises TooManyArgumentsError, and INVALID_JSON for arguments that are not a JSON object.
    """
    call, time = request.call, request.time
    arguments = parse_object(call.arguments) if ContextField.ARGUMENTS in context_fields else _NO_ARGUMENTS
    text, number, pointers, facts = _flatten(arguments)
    context = {
        **_constant_context(request),
        "session_id": call.session_id,
        "session_labels": sorted(request.labels or ()),
        "token_labels": sorted(request.token_labels),
        "arguments_digest": call.arguments_digest,
        "arguments": {
            "text": _uid("TextArguments"),
            "number": _uid("NumberArguments"),
            "pointers": pointers,
            "facts": facts,
        },
        "resources": list(call.resources) if ContextField.ARGUMENTS in context_fields else [],
        "time": {"epoch": int(time.timestamp()), "hour": time.hour, "weekday": time.isoweekday()},
        "zones": _uid("Zones"),
        "risk": _uid("RiskFacts"),
    }
    entities = [
        _tagged("TextArguments", text),
        _tagged("NumberArguments", number),
        _tagged("RiskFacts", dict(call.risk)),
        _tagged("Zones", zone_tags(time, zones)),
    ]
    return orjson.dumps(context).decode(), entities


def _flatten(arguments: dict[str, Any]) -> tuple[dict[str, str], dict[str, int], list[str], list[str]]:
    text: dict[str, str] = {}
    number: dict[str, int] = {}
    pointers: list[str] = []
    facts: dict[str, None] = {}
    for pointer, pattern, value in _descendants(arguments, "", ""):
        pointers.append(pointer)
        if len(pointers) > MAX_ARGUMENTS:
            raise TooManyArgumentsError
        if isinstance(value, dict | list):
            continue
        # Canonical JSON, so that equal values have equal texts: 7.0 is "7", as in the arguments digest.
        text[pointer] = value if isinstance(value, str) else canonical(value).decode()
        facts[f"{pattern}={text[pointer]}"] = None
        if isinstance(value, int | float) and not isinstance(value, bool):
            number[pointer] = _round_away_from_zero(value)
    return text, number, pointers, list(facts)


def _descendants(value: Any, pointer: str, pattern: str) -> Iterator[tuple[str, str, Any]]:
    """Yield every nested value with its JSON Pointer and the same pointer with `*` for each index."""
    if isinstance(value, dict):
        for name, member in value.items():
            step = pointer_of((name,))
            yield pointer + step, pattern + step, member
            yield from _descendants(member, pointer + step, pattern + step)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield f"{pointer}/{index}", f"{pattern}/*", item
            yield from _descendants(item, f"{pointer}/{index}", f"{pattern}/*")


def _round_away_from_zero(value: float) -> int:
    """Round so that a fraction never brings an amount below a bound, and clamp to 64 bits."""
    whole = math.ceil(value) if value > 0 else math.floor(value)
    return min(max(whole, _LOWEST), _HIGHEST)


def _uid(kind: str) -> dict[str, str]:
    return {"type": kind, "id": ""}


def _tagged(kind: str, tags: dict[str, Any]) -> dict[str, Any]:
    return {"uid": _uid(kind), "attrs": {}, "parents": [], "tags": tags}
