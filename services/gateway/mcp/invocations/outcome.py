"""Shows the outcome of an invocation as the result of `tools/call`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolmesh.executor.v1.executor_service_pb2 import FetchResultRequest
from toolmesh.executor.v1.invocation_pb2 import Invocation
from toolmesh.executor.v1.result_envelope_pb2 import ResultEnvelope

from libs.common.errors import MeshError, Reason
from libs.common.rpc.status import from_envelope
from libs.common.tool_names import ToolName, split_version_name
from services.gateway.convert import MAX_PIECE_BYTES
from services.gateway.mcp.context import McpContext, Result
from services.gateway.mcp.ports import ToolFacts
from services.gateway.mcp.tools.content import call_result, content_result, method_result

if TYPE_CHECKING:
    from toolmesh.executor.v1.executor_service_pb2_grpc import ExecutorServiceAsyncStub


class ShowOutcome:
    """Makes results of envelopes."""

    def __init__(self, executor: ExecutorServiceAsyncStub, facts: ToolFacts) -> None:
        self._executor, self._facts = executor, facts

    async def show(self, invocation: Invocation, context: McpContext) -> Result:
        """Return the result of an ended invocation, or raise its error."""
        if invocation.HasField("result"):
            tool, _ = split_version_name(invocation.tool_version)
            return await self.show_result(invocation.result, tool, context)
        raise from_envelope(invocation.error) if invocation.HasField("error") else MeshError(Reason.INTERNAL)

    async def show_result(self, result: ResultEnvelope, tool: ToolName, context: McpContext) -> Result:
        """Return the result of an envelope. In the view of a server, what stands for a method has that one's result."""
        structured = await self._structured(result)
        if context.view.namespace and self._facts.method_of(tool):
            if not structured:
                raise MeshError(Reason.RESULT_TOO_LARGE, metadata={"limit_bytes": str(MAX_PIECE_BYTES)})
            return method_result(result, structured)
        if structured and self._facts.shows_content(tool):
            return content_result(result, structured)
        return call_result(result, structured, stateless=context.stateless)

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
