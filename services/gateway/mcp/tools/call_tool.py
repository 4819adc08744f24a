"""`tools/call`: runs a tool of a view through the executor."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated, Any

import grpc.aio
import msgspec
import orjson
from mcp_types.jsonrpc import MISSING_REQUIRED_CLIENT_CAPABILITY
from toolmesh.executor.v1.executor_service_pb2 import InvokeRequest

from libs.common.call_context import serving
from libs.common.deadline_header import HIGHEST_MS
from libs.common.errors import MeshError, Reason, Violation
from libs.common.ids import new_id
from libs.common.tool_names import ToolName
from services.gateway.convert import MAX_ARGUMENT_BYTES
from services.gateway.mcp.caller_capabilities import caller_capabilities
from services.gateway.mcp.context import McpContext, Result
from services.gateway.mcp.invocations.outcome import ShowOutcome
from services.gateway.mcp.invocations.run_job import RunJob
from services.gateway.mcp.ports import ToolFacts
from services.gateway.mcp.protocol import TASKS_VERSION, ProtocolError
from services.gateway.mcp.tools import meta_tools
from services.gateway.mcp.tools.content import error_result
from services.gateway.mcp.tools.find_tools import FindTools
from services.gateway.mcp.upstreams.passed_methods import native_error
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

    def __init__(
        self, executor: ExecutorServiceAsyncStub, facts: ToolFacts, find: FindTools, outcomes: ShowOutcome, jobs: RunJob
    ) -> None:
        self._executor, self._facts, self._find, self._outcomes, self._jobs = executor, facts, find, outcomes, jobs

    async def call_tool(self, params: dict[str, Any], context: McpContext) -> Result:
        """Run a tool of the registry, or one of the gateway itself."""
        try:
            return await self._call(params["name"], params.get("arguments") or {}, params, context)
        except grpc.aio.AioRpcError as failure:
            error = peer_error(failure)
        except MeshError as failure:
            error = failure
        native = native_error(error)
        if isinstance(native, ProtocolError) and native.code == MISSING_REQUIRED_CLIENT_CAPABILITY:
            raise native
        if not error.row.mcp_tool_result:
            raise error
        return error_result(error, serving().trace.trace_id)

    async def _call(self, name: str, arguments: dict[str, Any], params: dict[str, Any], context: McpContext) -> Result:
        meta = call_meta(params)
        if name not in meta_tools.NAMES:
            return await self._invoke(name, arguments, meta, params, context)
        meta_tools.check_arguments(name, arguments)
        if name == meta_tools.SEARCH:
            return await self._find.search(arguments, context)
        if name == meta_tools.DESCRIBE:
            return await self._find.describe(arguments, context)
        digest = arguments.get("digest", meta.tool_digest)
        inner = msgspec.structs.replace(meta, tool_digest=digest)
        return await self._invoke(arguments["name"], arguments.get("arguments", {}), inner, params, context)

    async def _invoke(
        self, name: str, arguments: dict[str, Any], meta: CallMeta, params: dict[str, Any], context: McpContext
    ) -> Result:
        tool = context.view.tool_of(name)
        serving().tool = tool.qualified
        if context.view.tags and not self._facts.has_tags(tool, context.view.tags):
            raise MeshError(Reason.TOOL_NOT_FOUND)
        if context.view.namespace and self._facts.method_of(tool):
            # Shown as what it is: prompts, resources or completion.
            raise MeshError(Reason.TOOL_NOT_FOUND)
        request = self._request(tool, arguments, meta, context)
        task = params.get("task")
        if context.version == TASKS_VERSION and task is not None:
            return await self._jobs.start_task(request, task.get("ttl"), context)
        if self._facts.runs_as_job(tool) or params.get("requestState") is not None:
            return await self._jobs.run(request, params, meta.timeout_ms, context)
        try:
            response = await self._executor.Invoke(request)
        except grpc.aio.AioRpcError as failure:
            error = peer_error(failure)
            if error.reason is Reason.APPROVAL_REQUIRED and context.client.tasks:
                # The same call as a job waits for the same ticket.
                return await self._jobs.start_task(request, None, context)
            raise error from None
        return await self._outcomes.show_result(response.result, tool, context)

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
            caller_capabilities=caller_capabilities(context.client),
        )


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
