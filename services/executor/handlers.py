"""The RPCs, in the order of the contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toolmesh.executor.v1 import executor_service_pb2 as pb
from toolmesh.executor.v1 import executor_service_pb2_grpc as rpc

from libs.common.rpc.call import serving
from services.executor import convert
from services.executor.domain.invoke import Invoke


@dataclass(frozen=True)
class ExecutorHandlers(rpc.ExecutorServiceServicer):
    """Answers the calls of the executor service."""

    invoke: Invoke

    async def Invoke(self, request: pb.InvokeRequest, context: Any) -> pb.InvokeResponse:
        result = await self.invoke(convert.request_of(request, serving()))
        return convert.response_of(result)
