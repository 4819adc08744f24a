"""The steps around every MCP request: telemetry, policy row, parameters, deadline, error mapping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import grpc.aio
from mcp_types.methods import CACHEABLE_METHODS, validate_client_request
from pydantic import ValidationError

from libs.common.call_context import Call
from libs.common.deadline_header import allowed_seconds
from libs.common.errors import MeshError, Reason, Violation
from libs.common.json.json_pointer import pointer_of
from libs.common.telemetry.log import Log
from services.gateway.domain.errors import unknown_method, wrong_params
from services.gateway.domain.rate_limits import RateLimits
from services.gateway.domain.response import envelope
from services.gateway.mcp.context import McpContext, McpHandler, Result
from services.gateway.mcp.invocations.task_params import task_params
from services.gateway.mcp.messages import Message
from services.gateway.mcp.protocol import SERVER_META, ProtocolError, code_of, stateless_status
from services.gateway.mcp.tools.call_tool import call_meta
from services.gateway.method import Row
from services.gateway.policy import MCP_TOOL_RATES
from services.gateway.transport.asgi_types import DisconnectedError, Headers
from services.gateway.transport.call_pipeline import peer_error
from services.gateway.transport.reply import headers_of, status_of
from services.gateway.transport.request.headers import RequestHead
from services.gateway.transport.telemetry import CANCELED, Telemetry
from services.gateway.transport.telemetry import code_of as code_name

UNKNOWN, MALFORMED = "mcp/unknown", "mcp/malformed"
# How long a client may keep a listing; list_changed ends that sooner.
_CACHE_MS = 30_000
_MAX_VIOLATIONS = 20


class Answer(NamedTuple):
    """A JSON-RPC response and how HTTP carries it."""

    body: dict[str, Any]
    status: int = 200
    headers: Headers = []


class McpDispatcher:
    """Runs requests. Every failure becomes an answer; an unexpected one becomes INTERNAL, its cause only logged."""

    def __init__(
        self,
        handlers: Mapping[str, McpHandler],
        policy: Mapping[str, Row],
        telemetry: Telemetry,
        limits: RateLimits,
        log: Log,
    ) -> None:
        # Deny by omission: a method without a row is unknown.
        self._routes = {method: (handler, policy[method]) for method, handler in handlers.items() if method in policy}
        self._telemetry, self._limits, self._log = telemetry, limits, log

    async def run(self, message: Message, context: McpContext, call: Call, head: RequestHead) -> Answer:
        """Return the answer to a request."""
        method = f"mcp/{message.method}" if message.method in self._routes else UNKNOWN
        return await self._answer(method, message, context, call, lambda: self._result(message, context, call, head))

    async def run_own(
        self,
        message: Message,
        context: McpContext,
        call: Call,
        head: RequestHead,
        row: Row,
        work: Callable[[], Awaitable[Result]],
    ) -> Answer:
        """Return the answer of work that no method asks for, with the same steps around it."""

        async def result() -> Result:
            if head.refusal is not None:
                raise head.refusal
            self._set_deadline(call, head, None, row)
            return await work()

        return await self._answer(f"mcp/{message.method}", message, context, call, result)

    async def _answer(
        self,
        method: str,
        message: Message,
        context: McpContext,
        call: Call,
        work: Callable[[], Awaitable[Result]],
    ) -> Answer:
        call.method = method
        span, code = self._telemetry.begin(call), CANCELED
        try:
            try:
                result = await work()
                answer, code = Answer(response(message.id, self._finish(message, context, result))), "OK"
            except (asyncio.CancelledError, DisconnectedError):
                raise
            except ProtocolError as error:
                answer, code = protocol_answer(error, message.id), "INVALID_ARGUMENT"
            except Exception as error:
                failure = self._failure(call, error)
                answer = error_answer(failure, message.id, call.trace.trace_id, stateless=context.stateless)
                code = code_name(failure)
        finally:
            self._telemetry.end(call, span, code)
        return answer

    def record_refusal(self, call: Call, error: MeshError | None) -> None:
        """Record an HTTP request that never became a request of MCP."""
        call.method = MALFORMED
        self._telemetry.end(call, self._telemetry.begin(call), code_name(error))

    async def _result(self, message: Message, context: McpContext, call: Call, head: RequestHead) -> Result:
        if head.refusal is not None:
            raise head.refusal
        route = self._routes.get(message.method)
        if route is None:
            raise unknown_method()
        check_params(message, context.version)
        handler, row = route
        rate = MCP_TOOL_RATES.get(message.params["name"]) if message.method == "tools/call" else row.rate
        if rate is not None:
            self._limits.take(context.caller.owner, rate)
        timeout = call_meta(message.params).timeout_ms if message.method == "tools/call" else None
        self._set_deadline(call, head, timeout, row)
        return await handler(message.params, context)

    @staticmethod
    def _set_deadline(call: Call, head: RequestHead, timeout_ms: int | None, row: Row) -> None:
        call.deadline = head.started + allowed_seconds(head.deadline_ms, timeout_ms, row.deadline)
        if call.deadline <= time.monotonic():
            raise MeshError(Reason.DEADLINE_EXCEEDED)

    @staticmethod
    def _finish(message: Message, context: McpContext, result: Result) -> Result:
        """Add what a stateless revision demands of every result."""
        if not context.stateless:
            return result
        result = {"resultType": "complete", **result, "_meta": SERVER_META | result.get("_meta", {})}
        if message.method in CACHEABLE_METHODS:
            # What a caller sees depends on its token. A stored result never changes, but it is no one else's either.
            result |= {"ttlMs": _CACHE_MS, "cacheScope": "private"}
        return result

    def _failure(self, call: Call, error: Exception) -> MeshError:
        if isinstance(error, MeshError):
            return error
        if isinstance(error, grpc.aio.AioRpcError):
            return peer_error(error)
        self._log.error("unexpected error", method=call.method, cause=error)
        return MeshError(Reason.INTERNAL)


def check_params(message: Message, version: str) -> None:
    """Check the parameters against the SDK's types. Raises METHOD_NOT_FOUND or INVALID_PARAMS."""
    try:
        if message.method.startswith("tasks/"):
            # The SDK has their types, and leaves them out of its tables.
            task_params(message.method, version).model_validate(message.params, by_alias=True, by_name=False)
        else:
            validate_client_request(message.method, version, message.params)
    except KeyError:
        raise unknown_method() from None
    except ValidationError as error:
        skipped = 0 if message.method.startswith("tasks/") else 1
        raise wrong_params(
            [
                Violation(pointer_of(v["loc"][skipped:])[:200], v["type"], v["msg"][:200])
                for v in error.errors(include_url=False, include_context=False, include_input=False)[:_MAX_VIOLATIONS]
            ]
        ) from None


def response(request_id: Any, result: Result) -> dict[str, Any]:
    """Return the JSON-RPC response of a success."""
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def protocol_answer(error: ProtocolError, request_id: Any) -> Answer:
    """Return the answer of an error that MCP defines."""
    shown: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        shown["data"] = error.data
    return Answer({"jsonrpc": "2.0", "id": request_id, "error": shown}, error.status)


def error_answer(
    error: MeshError, request_id: Any, trace_id: str, *, stateless: bool, status: int | None = None
) -> Answer:
    """Return the answer of any other error: the error envelope is its data."""
    code = code_of(error)
    body = {
        "jsonrpc": "2.0",
        "id": request_id,
        "error": {"code": code, "message": error.message, "data": envelope(error, trace_id)},
    }
    by_mesh = status_of(error)
    if by_mesh == 200 and stateless:
        by_mesh = stateless_status(code)
    return Answer(body, status or by_mesh, headers_of(error))
