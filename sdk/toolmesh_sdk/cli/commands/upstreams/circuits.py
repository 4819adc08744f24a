"""Reads the circuits of an upstream from an executor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolmesh_sdk.cli.inputs.admin_connection import as_operator
from toolmesh_sdk.cli.inputs.target import Target

if TYPE_CHECKING:
    from toolmesh.executor.v1 import circuit_pb2 as cpb


def read_circuits(target: Target, upstream_id: str) -> list[cpb.Circuit]:
    """Return the circuits of an upstream. Raises ToolmeshError."""
    from toolmesh.executor.v1 import circuit_service_pb2 as pb
    from toolmesh.executor.v1.circuit_service_pb2_grpc import CircuitServiceStub

    found: list[cpb.Circuit] = []
    request = pb.ListCircuitsRequest(namespace=upstream_id)
    with as_operator(target, service="executor") as transport:
        stub = CircuitServiceStub(transport.channel)
        while True:
            page = transport.unary(stub.ListCircuits, request, None, repeatable=True)
            found.extend(page.circuits)
            request.page_token = page.next_page_token
            if not page.next_page_token:
                return found
