"""Converts AuthZEN evaluations to authz requests, and decisions back. Pure."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import orjson
from toolmesh.authz.v1 import authz_service_pb2 as pb
from toolmesh.authz.v1 import decision_pb2 as dpb
from toolmesh.common.v1 import error_reason_pb2
from toolmesh.registry.v1.registry_service_pb2 import ResolveToolRequest
from toolmesh.registry.v1.tool_version_pb2 import ToolVersion

from libs.authz_client.tool_attributes import tool_attributes
from libs.common.errors import MeshError, Reason, Violation
from libs.common.json.canonical import digest
from libs.common.json.jsonio import parse_object
from libs.common.json.resource_pointers import ResourcePointers
from services.gateway.authzen.model import Evaluation, decision_answer

ACTION, RESOURCE = "invoke", "tool"
MAX_ARGUMENT_BYTES = 1024 * 1024
_KINDS = {
    "user": pb.PRINCIPAL_KIND_USER,
    "agent": pb.PRINCIPAL_KIND_AGENT,
    "service": pb.PRINCIPAL_KIND_SERVICE,
}


def resolve_request(evaluation: Evaluation) -> ResolveToolRequest:
    """Return the request that resolves `core.echo` or `core.echo@^1` to a version."""
    tool, _, version = evaluation.resource["id"].partition("@")
    return ResolveToolRequest(tool=tool, version_constraint=version)


def check_request(evaluation: Evaluation, version: ToolVersion, own: frozenset[str]) -> pb.CheckRequest:
    """Return the request for a decision, about the caller if the subject is one of its own names."""
    request = pb.CheckRequest(call=_call_facts(evaluation, version))
    if evaluation.subject["id"] not in own:
        request.subject.CopyFrom(_subject(evaluation.subject))
    return request


def _subject(subject: Mapping[str, Any]) -> pb.SubjectFacts:
    kind, properties = _KINDS.get(subject["type"]), subject.get("properties", {})
    if kind is None:
        violation = Violation("/subject/type", "enum", f"must be one of {', '.join(_KINDS)}")
        raise MeshError(Reason.INVALID_REQUEST, violations=[violation])
    try:
        return pb.SubjectFacts(
            subject=subject["id"],
            kind=kind,
            on_behalf_of=properties.get("on_behalf_of", ""),
            tenant=properties.get("tenant", ""),
            trust_level=properties.get("trust_level", 0),
            groups=properties.get("groups", ()),
            scopes=properties.get("scopes", ()),
        )
    except (ValueError, TypeError):
        violation = Violation("/subject/properties", "range", "is out of range")
        raise MeshError(Reason.INVALID_REQUEST, violations=[violation]) from None


def _call_facts(evaluation: Evaluation, version: ToolVersion) -> pb.CallFacts:
    context = evaluation.context
    facts = tool_attributes(version, time.time())
    facts.session_id = context.get("session_id", "")
    facts.risk.update(context.get("risk", {}))
    if "arguments" in context:
        _add_arguments(facts, context["arguments"], version.manifest.input.schema)
    return facts


def _add_arguments(facts: pb.CallFacts, arguments: dict[str, Any], schema: bytes) -> None:
    facts.arguments = orjson.dumps(arguments)
    if len(facts.arguments) > MAX_ARGUMENT_BYTES:
        raise MeshError(Reason.PAYLOAD_TOO_LARGE, metadata={"limit_bytes": str(MAX_ARGUMENT_BYTES)})
    facts.arguments_digest = digest(arguments)
    pointers = ResourcePointers.of(parse_object(schema))
    if pointers is not None:
        facts.resources.extend(pointers(arguments))


def decision_json(decision: dpb.Decision) -> dict[str, Any]:
    """Return a decision in the form of AuthZEN. Only a plain allow is `true`."""
    outcome = decision.WhichOneof("outcome") or "deny"
    context: dict[str, Any] = {
        "decision_id": decision.name,
        "outcome": outcome,
        "reasons": list(decision.reasons),
        "policies": list(decision.determining_policies),
        "policy_set_version": decision.policy_set_version,
        "expires_at": decision.expire_time.ToJsonString(),
    }
    if outcome == "deny":
        reason = error_reason_pb2.ErrorReason.Name(decision.deny.reason)
        context["reason"] = reason.removeprefix("ERROR_REASON_")
    if outcome == "needs_approval":
        approval = decision.needs_approval
        context["approval"] = {"approver_groups": list(approval.approver_groups), "quorum": approval.quorum}
    if decision.obligations:
        context["obligations"] = [_obligation(obligation) for obligation in decision.obligations]
    return decision_answer(outcome == "allow" and decision.mode != dpb.DECISION_MODE_SHADOW, context)


def _obligation(obligation: dpb.Obligation) -> dict[str, Any]:
    kind = dpb.ObligationKind.Name(obligation.kind).removeprefix("OBLIGATION_KIND_").lower()
    return {"kind": kind, "values": list(obligation.values)}
