"""Converts JSON-RPC parameters to requests, and responses to JSON."""

from __future__ import annotations

from typing import Any, TypeVar

import orjson
from google.protobuf.message import Message
from toolmesh.common.v1.error_reason_pb2 import ErrorEnvelope
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
from toolmesh.executor.v1.result_envelope_pb2 import ResultEnvelope
from toolmesh.registry.v1.registry_service_pb2 import (
    GetToolRequest,
    GetToolResponse,
    ListToolsRequest,
    ListToolsResponse,
    ResolveToolRequest,
)
from toolmesh.registry.v1.tool_version_pb2 import ToolVersion

from libs.common.errors import MeshError, Reason
from libs.common.rpc.limits import MAX_MESSAGE_BYTES
from libs.common.rpc.status import from_envelope
from services.gateway.domain.response import envelope
from services.gateway.protojson import MessageJson, blob

Json = Any
Params = dict[str, Any]
MAX_ARGUMENT_BYTES = 3 * 1024 * 1024
MAX_PIECE_BYTES = 1024 * 1024

JSON_FIELDS = frozenset(
    {
        "toolmesh.executor.v1.ResultEnvelope.structured_content",
        "toolmesh.executor.v1.Compensation.arguments",
        "toolmesh.executor.v1.InvokeRequest.arguments",
        "toolmesh.executor.v1.SettleKeyRequest.result",
        "toolmesh.executor.v1.InvocationInput.content",
        "toolmesh.executor.v1.InputRequest.schema",
        "toolmesh.executor.v1.InvocationInputs.model_input",
        "toolmesh.executor.v1.InvocationInputs.observable_input",
        "toolmesh.executor.v1.InvocationInputs.permission_input",
        "toolmesh.executor.v1.InvocationInputs.call_input",
        "toolmesh.executor.v1.PreviewInvocationResponse.predicted_result",
        "toolmesh.registry.v1.InputContract.schema",
        "toolmesh.registry.v1.InputContract.runtime_schema",
        "toolmesh.registry.v1.ContractExample.arguments",
        "toolmesh.registry.v1.ContractExample.result",
        "toolmesh.registry.v1.OutputContract.schema",
        "toolmesh.registry.v1.OutputContract.error_schema",
        "toolmesh.registry.v1.McpMapping.meta",
        "toolmesh.registry.v1.ToolSchema.input_schema",
        "toolmesh.registry.v1.ToolSchema.output_schema",
        "toolmesh.executor.v1.ClientRequest.params",
        "toolmesh.executor.v1.PartialResult.content",
        "toolmesh.authz.v1.ArgumentConstraint.schema",
        "toolmesh.approval.v1.Ticket.redacted_arguments",
        "toolmesh.approval.v1.Ticket.preview",
        "toolmesh.audit.v1.AuditRecord.arguments_summary",
        "toolmesh.audit.v1.AuditRecord.result_summary",
    }
)
_M = TypeVar("_M", bound=Message)


def _error_json(error: ErrorEnvelope) -> Json:
    return envelope(from_envelope(error), error.trace_id)


_as_json = MessageJson(JSON_FIELDS, {"toolmesh.common.v1.ErrorEnvelope": _error_json}).convert


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
        ticket=get("ticket", ""),
    )


def group_request(params: Params) -> InvokeGroupRequest:
    """Build the executor's request for a group of calls."""
    return checked_size(InvokeGroupRequest(calls=[_group_call(call) for call in params["calls"]]))


def checked_size(request: _M) -> _M:
    """Return the request. Raises PAYLOAD_TOO_LARGE where the re-encoded request is larger than a message may be."""
    # gRPC would report an oversized message as overload.
    if request.ByteSize() > MAX_MESSAGE_BYTES:
        raise MeshError(Reason.PAYLOAD_TOO_LARGE, metadata={"limit_bytes": str(MAX_MESSAGE_BYTES)})
    return request


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
        usable_only=params.get("usable_only", False),
    )


def get_request(params: Params) -> GetToolRequest:
    """Build the registry's request for one tool."""
    return GetToolRequest(name=params["tool"])


def resolve_request(params: Params) -> ResolveToolRequest:
    """Build the registry's request for the version that a reference means."""
    return ResolveToolRequest(tool=params["tool"], version_constraint=params.get("version", ""))


def message_json(message: Message) -> Json:
    """Return a message of a peer as it is."""
    return _as_json(message)


def result_json(result: ResultEnvelope) -> Json:
    """Return the result envelope."""
    return _as_json(result)


def group_json(response: InvokeGroupResponse) -> Json:
    """Return the outcome of each call of a group."""
    outcomes = [
        {
            "result": result_json(outcome.result) if outcome.HasField("result") else None,
            "error": _error_json(outcome.error) if outcome.HasField("error") else None,
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


def version_json(version: ToolVersion) -> Json:
    """Return a tool version. Its two schemas stand beside the manifest, not inside it."""
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
