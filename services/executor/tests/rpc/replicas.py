"""Two executors that share a database, as a caller of invocations by name sees them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from toolmesh.executor.v1 import executor_service_pb2 as call_pb
from toolmesh.executor.v1 import invocation_service_pb2 as pb

from libs.common.errors import MeshError, Reason
from libs.common.ids import new_id
from libs.common.json.jsonio import dump
from libs.common.rpc.status import from_rpc_error


class Replicas:
    """Two executors, as a caller sees them."""

    def __init__(self, stubs: list[Any], signer: Any, folder: Path) -> None:
        self.stubs, self.folder = stubs, folder
        self._signer = signer
        self._metadata = (("authorization", f"Bearer {signer.mint()}"),)

    async def ask(self, where: int, method: str, request: Any, **claims: Any) -> Any:
        """Call one of them, as the usual caller or one with other claims."""
        metadata = (("authorization", f"Bearer {self._signer.mint(**claims)}"),) if claims else self._metadata
        try:
            return await getattr(self.stubs[where], method)(request, metadata=metadata, timeout=120)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error

    async def start(self, where: int, takes_ms: int = 0, *, key: str = "", tool: str = "book_once") -> Any:
        """Start a booking."""
        arguments = b'{"takes_ms":%d}' % takes_ms
        call = call_pb.InvokeRequest(tool=tool, arguments=arguments, idempotency_key=key or new_id())
        return (await self.ask(where, "StartInvocation", pb.StartInvocationRequest(request=call))).invocation

    async def ended(self, where: int, name: str) -> Any:
        """Return an invocation once it has ended."""
        while True:
            found = (await self.ask(where, "WaitInvocation", pb.WaitInvocationRequest(name=name))).invocation
            if found.HasField("end_time"):
                return found

    async def report(self, where: int, *, tool: str = "report_steps", **arguments: Any) -> Any:
        """Start a tool that reports."""
        call = call_pb.InvokeRequest(tool=tool, arguments=dump(arguments))
        return (await self.ask(where, "StartInvocation", pb.StartInvocationRequest(request=call))).invocation

    def stream(self, where: int) -> Any:
        """Open a stream."""
        return self.stubs[where].StreamInvocation(metadata=self._metadata)

    def watch(self, where: int, name: str, after: int = 0) -> Any:
        """Open a watch."""
        request = pb.WatchInvocationRequest(name=name, after_sequence=after)
        return self.stubs[where].WatchInvocation(request, metadata=self._metadata)


async def refusal(call: Any) -> Reason:
    """Return the reason that a call is refused for."""
    with pytest.raises(MeshError) as refused:
        await call
    return refused.value.reason
