"""Passes methods of MCP on to the server behind a view: each is a tool of its upstream, called like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc.aio
import orjson
from mcp_types.jsonrpc import INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY
from toolmesh.executor.v1.executor_service_pb2 import InvokeRequest

from libs.common.errors import MeshError, Reason
from libs.common.tool_names import ToolName
from services.gateway.domain.errors import unknown_method
from services.gateway.mcp.caller_capabilities import caller_capabilities
from services.gateway.mcp.context import McpContext, Result
from services.gateway.mcp.invocations.outcome import ShowOutcome
from services.gateway.mcp.invocations.run_job import RunJob
from services.gateway.mcp.ports import ToolFacts
from services.gateway.mcp.protocol import ProtocolError
from services.gateway.mcp.views import View
from services.gateway.transport.call_pipeline import peer_error

if TYPE_CHECKING:
    from toolmesh.executor.v1.executor_service_pb2_grpc import ExecutorServiceAsyncStub

# Only these may ask their caller.
_MAY_ASK = frozenset({"prompts/get", "resources/read"})
_ARGUMENTS = {
    "prompts/get": ("name", "arguments"),
    "resources/read": ("uri",),
    "resources/subscribe": ("uri",),
    "completion/complete": ("ref", "argument", "context"),
}


class PassedMethods:
    """Calls the tools that stand for methods. A view of one namespace has what its upstream has, and no other view."""

    def __init__(
        self, executor: ExecutorServiceAsyncStub, facts: ToolFacts, outcomes: ShowOutcome, jobs: RunJob
    ) -> None:
        self._executor, self._facts, self._outcomes, self._jobs = executor, facts, outcomes, jobs

    def offers(self, view: View, method: str) -> bool:
        """Return whether the server behind a view has the method."""
        return passes(self._facts, view, method)

    async def list_prompts(self, params: dict[str, Any], context: McpContext) -> Result:
        """Return a page of prompts."""
        return await self.call("prompts/list", params, context)

    async def get_prompt(self, params: dict[str, Any], context: McpContext) -> Result:
        """Return a prompt, or what its server asks first."""
        return await self.call("prompts/get", params, context)

    async def complete(self, params: dict[str, Any], context: McpContext) -> Result:
        """Complete an argument of a prompt or a resource template."""
        return await self.call("completion/complete", params, context)

    async def call(self, method: str, params: dict[str, Any], context: McpContext) -> Result:
        """Return the server's result. Raises METHOD_NOT_FOUND where the view has none."""
        if not self.offers(context.view, method):
            raise unknown_method()
        names = _ARGUMENTS.get(method, ("cursor",))
        arguments = {name: params[name] for name in names if params.get(name) is not None}
        tool = tool_of(context.view, method)
        request = InvokeRequest(
            tool=tool.qualified,
            arguments=orjson.dumps(arguments),
            native_call_id=str(context.request_id),
            caller_capabilities=caller_capabilities(context.client),
        )
        try:
            if method in _MAY_ASK and (request.caller_capabilities or params.get("requestState") is not None):
                return await self._jobs.run(request, params, None, context, may_be_task=False)
            response = await self._executor.Invoke(request)
            return await self._outcomes.show_result(response.result, tool, context)
        except grpc.aio.AioRpcError as failure:
            raise native_error(peer_error(failure)) from None
        except MeshError as error:
            raise native_error(error) from None


def tool_of(view: View, method: str) -> ToolName:
    """Return the tool that stands for a method of the server behind a view."""
    return ToolName(view.namespace, method.replace("/", "_"))


def passes(facts: ToolFacts, view: View, method: str) -> bool:
    """Return whether the server behind a view has the method."""
    return bool(view.namespace) and facts.method_of(tool_of(view, method)) == method


def native_error(error: MeshError) -> MeshError | ProtocolError:
    """Return the error that the server itself answered with, where clients of MCP act on it; else the error."""
    code = error.metadata.get("jsonrpc_code") if error.reason is Reason.EXECUTION_FAILED else None
    if code == str(MISSING_REQUIRED_CLIENT_CAPABILITY):
        missing = error.metadata.get("required_capabilities", "").split(",")
        data: Result = {"requiredCapabilities": {name: {} for name in missing if name}}
        return ProtocolError(MISSING_REQUIRED_CLIENT_CAPABILITY, error.message, data)
    if code == str(INVALID_PARAMS):
        return ProtocolError(INVALID_PARAMS, error.message)
    return error
