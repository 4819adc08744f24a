"""`tools/call`: runs a tool of a view through the executor."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated, Any

import grpc.aio
import msgspec
import orjson
from toolmesh.executor.v1.executor_service_pb2 import FetchResultRequest, InvokeRequest
from toolmesh.executor.v1.result_envelope_pb2 import ResultEnvelope

from libs.common.call_context import serving
from libs.common.deadline_header import HIGHEST_MS
from libs.common.errors import MeshError, Reason, Violation
from libs.common.ids import new_id
from libs.common.tool_names import ToolName
from services.gateway.convert import MAX_ARGUMENT_BYTES, MAX_PIECE_BYTES
from services.gateway.mcp import meta_tools
from services.gateway.mcp.content import call_result, error_result
from services.gateway.mcp.context import McpContext, Result
from services.gateway.mcp.find_tools import FindTools
from services.gateway.mcp.ports import ToolFacts
from services.gateway.transport.call_pipeline import peer_error

if TYPE_CHECKING:
    from toolmesh.executor.v1.executor_service_pb2_grpc import ExecutorServiceAsyncStub

_PREFIX = "dev.toolmesh/"
_Visible = "^[!-~]*$"


class CallMeta(
    msgspec.Struct,
    frozen=True,
    rename={
        "idempotency_key": f"{_PREFIX}idempotencyKey",
        "session_id": f"{_PREFIX}sessionId",
        "task_id": f"{_PREFIX}taskId",
        "tool_digest": f"{_PREFIX}toolDigest",
        "preview_token": f"{_PREFIX}previewToken",
        "ticket": f"{_PREFIX}ticket",
        "priority": f"{_PREFIX}priority",
        "timeout_ms": f"{_PREFIX}timeoutMs",
        "version": f"{_PREFIX}version",
    },
):
    """What a client may say of a call in its `_meta`, beside the tool and the arguments."""

    idempotency_key: Annotated[str, msgspec.Meta(max_length=255, pattern=_Visible)] = ""
    session_id: Annotated[str, msgspec.Meta(max_length=128, pattern=_Visible)] = ""
    task_id: Annotated[str, msgspec.Meta(max_length=128)] = ""
    tool_digest: Annotated[str, msgspec.Meta(pattern="^(sha256:[0-9a-f]{64})?$")] = ""
    preview_token: Annotated[str, msgspec.Meta(max_length=1024)] = ""
    ticket: Annotated[str, msgspec.Meta(max_length=128, pattern=_Visible)] = ""
    priority: Annotated[int, msgspec.Meta(ge=0, le=10)] = 0
    timeout_ms: Annotated[int, msgspec.Meta(ge=1, le=HIGHEST_MS)] | None = None
    version: Annotated[str, msgspec.Meta(max_length=128)] = ""


class CallTool:
    """Calls tools. A failure that the model can act on is a result; any other is an error of the protocol."""

    def __init__(self, executor: ExecutorServiceAsyncStub, facts: ToolFacts, find: FindTools) -> None:
        self._executor, self._facts, self._find = executor, facts, find

    async def call_tool(self, params: dict[str, Any], context: McpContext) -> Result:
        """Run a tool of the registry, or one of the gateway itself."""
        try:
            return await self._call(params["name"], params.get("arguments") or {}, call_meta(params), context)
        except grpc.aio.AioRpcError as failure:
            error = peer_error(failure)
        except MeshError as failure:
            error = failure
        if not error.row.mcp_tool_result:
            raise error
        return error_result(error, serving().trace.trace_id)

    async def _call(self, name: str, arguments: dict[str, Any], meta: CallMeta, context: McpContext) -> Result:
        if name not in meta_tools.NAMES:
            return await self._invoke(name, arguments, meta, context)
        meta_tools.check_arguments(name, arguments)
        if name == meta_tools.SEARCH:
            return await self._find.search(arguments, context)
        if name == meta_tools.DESCRIBE:
            return await self._find.describe(arguments, context)
        digest = arguments.get("digest", meta.tool_digest)
        inner = msgspec.structs.replace(meta, tool_digest=digest)
        return await self._invoke(arguments["name"], arguments.get("arguments", {}), inner, context)

    async def _invoke(self, name: str, arguments: dict[str, Any], meta: CallMeta, context: McpContext) -> Result:
        tool = context.view.tool_of(name)
        if context.view.tags and not self._facts.has_tags(tool, context.view.tags):
            raise MeshError(Reason.TOOL_NOT_FOUND)
        response = await self._executor.Invoke(self._request(tool, arguments, meta, context))
        result = response.result
        return call_result(result, await self._structured(result), stateless=context.stateless)

    def _request(self, tool: ToolName, arguments: dict[str, Any], meta: CallMeta, context: McpContext) -> InvokeRequest:
        encoded = orjson.dumps(arguments) if arguments else b""
        if len(encoded) > MAX_ARGUMENT_BYTES:
            raise MeshError(Reason.PAYLOAD_TOO_LARGE, metadata={"limit_bytes": str(MAX_ARGUMENT_BYTES)})
        key = meta.idempotency_key
        if not key and self._facts.requires_key(tool):
            key = request_key(context)
        return InvokeRequest(
            tool=tool.qualified,
            version=meta.version,
            arguments=encoded,
            idempotency_key=key,
            session_id=meta.session_id,
            task_id=meta.task_id,
            native_call_id=str(context.request_id),
            tool_digest=meta.tool_digest,
            priority=meta.priority,
            preview_token=meta.preview_token,
            ticket=meta.ticket,
        )

    async def _structured(self, result: ResultEnvelope) -> bytes:
        """Return the structured result. One that was stored is fetched if it is small enough to be embedded here: a
        client refuses a result without it where the tool has an output schema."""
        if result.structured_content or len(result.persisted) != 1:
            return result.structured_content
        stored = result.persisted[0]
        if stored.size_bytes > MAX_PIECE_BYTES or stored.media_type not in ("", "application/json"):
            return b""
        request = FetchResultRequest(ref=stored.ref, access_token=stored.access_token)
        return b"".join([piece.content async for piece in self._executor.FetchResult(request)])


def call_meta(params: dict[str, Any]) -> CallMeta:
    """Return what the `_meta` of a call says. Raises INVALID_PARAMS for a value of the wrong form."""
    try:
        return msgspec.convert(params.get("_meta") or {}, CallMeta)
    except msgspec.ValidationError as error:
        raise MeshError(Reason.INVALID_PARAMS, violations=[Violation("/_meta", "form", str(error)[:200])]) from None


def request_key(context: McpContext) -> str:
    """Return an idempotency key for a request whose client sent none, although the tool demands one.

    In a session the id of a request names it, so that a request sent twice has one effect. A stateless request has no
    such name: each is a call of its own.
    """
    if not context.session:
        return f"mcp-{new_id()}"
    named = f"{context.session}:{type(context.request_id).__name__}:{context.request_id}"
    return f"mcp-{hashlib.sha256(named.encode()).hexdigest()}"
