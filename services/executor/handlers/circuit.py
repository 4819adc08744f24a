"""Handles the RPCs of the circuit service, in proto order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toolmesh.executor.v1 import circuit_service_pb2 as pb
from toolmesh.executor.v1 import circuit_service_pb2_grpc as rpc

from services.executor.convert.circuits import circuit_message
from services.executor.domain.resilience.list_circuits import ListCircuits


@dataclass(frozen=True)
class CircuitHandlers(rpc.CircuitServiceServicer):
    """Implements CircuitService."""

    list_circuits: ListCircuits

    async def ListCircuits(self, request: pb.ListCircuitsRequest, context: Any) -> pb.ListCircuitsResponse:
        page, token = await self.list_circuits.execute(request.namespace, request.page_size, request.page_token)
        return pb.ListCircuitsResponse(circuits=map(circuit_message, page), next_page_token=token)
