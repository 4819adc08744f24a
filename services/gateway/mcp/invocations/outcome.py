"""Shows the outcome of an invocation as the result of `tools/call`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolmesh.executor.v1.executor_service_pb2 import FetchResultRequest
from toolmesh.executor.v1.invocation_pb2 import Invocation
from toolmesh.executor.v1.result_envelope_pb2 import ResultEnvelope

from libs.common.errors import MeshError, Reason
from libs.common.rpc.status import from_envelope
from services.gateway.convert import MAX_PIECE_BYTES
from services.gateway.mcp.context import McpContext, Result
from services.gateway.mcp.tools.content import call_result

if TYPE_CHECKING:
    from toolmesh.executor.v1.executor_service_pb2_grpc import ExecutorServiceAsyncStub


class ShowOutcome:
    """Makes results of envelopes."""

    def __init__(self, executor: ExecutorServiceAsyncStub) -> None:
        self._executor = executor

    async def show(self, invocation: Invocation, context: McpContext) -> Result:
        """Return the result of an ended invocation, or raise its error."""
        if invocation.HasField("result"):
            return await self.show_result(invocation.result, context)
        raise from_envelope(invocation.error) if invocation.HasField("error") else MeshError(Reason.INTERNAL)

    async def show_result(self, result: ResultEnvelope, context: McpContext) -> Result:
        """Return the result of an envelope."""
        return call_result(result, await self._structured(result), stateless=context.stateless)

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
