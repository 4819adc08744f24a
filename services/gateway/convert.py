"""Parameters to requests, responses to JSON. The result of a call is written by hand, because every call pays for it."""

from __future__ import annotations

from typing import Any

import orjson
from toolmesh.executor.v1 import result_envelope_pb2 as results
from toolmesh.executor.v1.executor_service_pb2 import (
    FetchResultRequest,
    FetchResultResponse,
    GroupCall,
    InvokeGroupRequest,
    InvokeGroupResponse,
    InvokeRequest,
    PreviewInvocationRequest,
    PreviewInvocationResponse,
    SiblingFailure,
)
from toolmesh.registry.v1.registry_service_pb2 import (
    GetToolRequest,
    GetToolResponse,
    ListToolsRequest,
    ListToolsResponse,
    ResolveToolRequest,
)
from toolmesh.registry.v1.tool_version_pb2 import ToolVersion

from libs.common.errors import MeshError, Reason
from libs.common.rpc.status import from_envelope
from services.gateway.domain.answer import envelope
from services.gateway.protojson import MessageJson, blob, fragment, milliseconds, timestamp, words

Json = Any
Params = dict[str, Any]
MAX_ARGUMENT_BYTES = 3 * 1024 * 1024
MAX_PIECE_BYTES = 1024 * 1024

JSON_FIELDS = frozenset(
    {
        "toolmesh.executor.v1.ResultEnvelope.structured_content",
        "toolmesh.executor.v1.Compensation.arguments",
        "toolmesh.executor.v1.PreviewInvocationResponse.predicted_result",
        "toolmesh.registry.v1.InputContract.schema",
        "toolmesh.registry.v1.InputContract.runtime_schema",
        "toolmesh.registry.v1.ContractExample.arguments",
        "toolmesh.registry.v1.ContractExample.result",
        "toolmesh.registry.v1.OutputContract.schema",
        "toolmesh.registry.v1.OutputContract.error_schema",
        "toolmesh.registry.v1.McpMapping.meta",
    }
)
_as_json = MessageJson(JSON_FIELDS)
_STATUS = words(results.ResultStatus.DESCRIPTOR)
_ROLE = words(results.ContentRole.DESCRIPTOR)
_SOURCE = words(results.ResultSource.DESCRIPTOR)
_REDACTION = words(results.RedactionState.DESCRIPTOR)


def invoke_request(params: Params) -> InvokeRequest:
    """Build the executor's request. Arguments travel as bytes of JSON, in which every 64-bit integer survives."""
    arguments = orjson.dumps(params["arguments"]) if "arguments" in params else b""
    if len(arguments) > MAX_ARGUMENT_BYTES:
        raise MeshError(Reason.PAYLOAD_TOO_LARGE, metadata={"limit_bytes": str(MAX_ARGUMENT_BYTES)})
    get = params.get
    return InvokeRequest(
        tool=params["tool"],
        version=get("version", ""),
        arguments=arguments,
        idempotency_key=get("idempotency_key", ""),
        session_id=get("session_id", ""),
        task_id=get("task_id", ""),
        native_call_id=get("native_call_id", ""),
        tool_digest=get("tool_digest", ""),
        priority=int(get("priority", 0)),
        preview_token=get("preview_token", ""),
    )


def group_request(params: Params) -> InvokeGroupRequest:
    """Build the executor's request for a group of calls."""
    return InvokeGroupRequest(calls=[_group_call(call) for call in params["calls"]])


def _group_call(call: Params) -> GroupCall:
    failure = f"SIBLING_FAILURE_{call.get('on_failure', 'unspecified').upper()}"
    return GroupCall(
        request=invoke_request(call),
        depends_on=[int(place) for place in call.get("depends_on", ())],
        on_failure=SiblingFailure.Value(failure),
    )


def preview_request(params: Params) -> PreviewInvocationRequest:
    """Build the executor's request for a preview."""
    return PreviewInvocationRequest(request=invoke_request(params))


def fetch_request(params: Params) -> FetchResultRequest:
    """Build the executor's request for a piece of a stored result."""
    return FetchResultRequest(
        ref=params["ref"],
        access_token=params["access_token"],
        offset=int(params.get("offset", 0)),
        max_bytes=int(params.get("max_bytes", MAX_PIECE_BYTES)),
    )


def list_request(params: Params) -> ListToolsRequest:
    """Build the registry's request for a page."""
    return ListToolsRequest(
        # JSON Schema counts 10.0 as an integer.
        page_size=int(params.get("page_size", 0)),
        page_token=params.get("page_token", ""),
        namespace=params.get("namespace", ""),
        tags=params.get("tags", ()),
    )


def get_request(params: Params) -> GetToolRequest:
    """Build the registry's request for one tool."""
    return GetToolRequest(name=params["tool"])


def resolve_request(params: Params) -> ResolveToolRequest:
    """Build the registry's request for the version that a reference means."""
    return ResolveToolRequest(tool=params["tool"], version_constraint=params.get("version", ""))


def result_json(result: results.ResultEnvelope) -> Json:
    """Return the result envelope; the rule of `protojson`, field by field."""
    return {
        "result_id": result.result_id,
        "invocation_id": result.invocation_id,
        "status": _STATUS.get(result.status, result.status),
        "structured_content": fragment(result.structured_content),
        "content": [_content(part) for part in result.content],
        "model_facing_content": result.model_facing_content,
        "ui_facing_summary": result.ui_facing_summary,
        "transcript_search_text": result.transcript_search_text,
        "provenance": _provenance(result.provenance) if result.HasField("provenance") else None,
        "execution": _execution(result.execution) if result.HasField("execution") else None,
        "replayed": result.replayed,
        "adjusted_arguments": list(result.adjusted_arguments),
        "deprecation": _as_json(result.deprecation) if result.HasField("deprecation") else None,
        "redaction_state": _REDACTION.get(result.redaction_state, result.redaction_state),
        "adjusted_result": list(result.adjusted_result),
        "persisted": [_as_json(kept) for kept in result.persisted],
        "resource_refs": list(result.resource_refs),
        "artifact_refs": list(result.artifact_refs),
        "evidence_refs": list(result.evidence_refs),
        "policy_refs": list(result.policy_refs),
        "trace_id": result.trace_id,
        "create_time": timestamp(result.create_time) if result.HasField("create_time") else None,
        "argument_changes": [{"path": c.path, "source": c.source, "reason": c.reason} for c in result.argument_changes],
        "additional_context": list(result.additional_context),
        "effects": [_as_json(effect) for effect in result.effects],
        "compensation": _as_json(result.compensation) if result.HasField("compensation") else None,
    }


def group_json(response: InvokeGroupResponse) -> Json:
    """Return what became of each call of a group."""
    outcomes = [
        {
            "result": result_json(outcome.result) if outcome.HasField("result") else None,
            "error": envelope(from_envelope(outcome.error), outcome.error.trace_id)
            if outcome.HasField("error")
            else None,
        }
        for outcome in response.outcomes
    ]
    return {"outcomes": outcomes}


def preview_json(response: PreviewInvocationResponse) -> Json:
    """Return what a call would do."""
    return _as_json(response)


def piece_json(pieces: list[FetchResultResponse]) -> Json:
    """Return the pieces of a stored result as one."""
    first = pieces[0]
    return {
        "content": blob(b"".join(piece.content for piece in pieces)),
        "offset": first.offset,
        "size_bytes": first.size_bytes,
        "digest": first.digest,
        "media_type": first.media_type,
    }


def _content(part: results.ContentPart) -> Json:
    kind = part.WhichOneof("part")
    shown: dict[str, Json] = {}
    if kind is not None:
        shown[kind] = blob(part.blob) if kind == "blob" else getattr(part, kind)
    shown["media_type"] = part.media_type
    shown["role"] = _ROLE.get(part.role, part.role)
    return shown


def _provenance(provenance: results.Provenance) -> Json:
    return {
        "tool_version": provenance.tool_version,
        "tool_digest": provenance.tool_digest,
        "source": _SOURCE.get(provenance.source, provenance.source),
        "retrieve_time": timestamp(provenance.retrieve_time) if provenance.HasField("retrieve_time") else None,
        "content_version": provenance.content_version,
    }


def _execution(execution: results.ExecutionMetadata) -> Json:
    return {
        "total_ms": milliseconds(execution.total) if execution.HasField("total") else None,
        "phases": [
            {"phase": p.phase, "duration_ms": milliseconds(p.duration) if p.HasField("duration") else None}
            for p in execution.phases
        ],
        "attempts": execution.attempts,
        "sandbox_ref": execution.sandbox_ref,
        "costs": [
            {"category": c.category, "amount_micros": c.amount_micros, "currency": c.currency} for c in execution.costs
        ],
        "result_size_bytes": execution.result_size_bytes,
    }


def version_json(version: ToolVersion) -> Json:
    """Return a tool version. Its two schemas stand beside the manifest, where callers look for them, and not inside it."""
    shown = _as_json(version)
    manifest = shown["manifest"] or {}
    for side in ("input", "output"):
        shown[f"{side}_schema"] = (manifest.get(side) or {}).pop("schema", None)
    return shown


def list_json(response: ListToolsResponse) -> Json:
    """Return a page of tools."""
    tools = [
        {
            "tool": _as_json(listed.tool),
            "version": version_json(listed.version) if listed.HasField("version") else None,
        }
        for listed in response.tools
    ]
    return {"tools": tools, "next_page_token": response.next_page_token}


def get_json(response: GetToolResponse) -> Json:
    """Return one tool and its versions."""
    return {"tool": _as_json(response.tool), "versions": [version_json(version) for version in response.versions]}
