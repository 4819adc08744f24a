"""Every RPC has a row, and the row is what the contract says."""

from __future__ import annotations

from toolmesh.executor.v1 import circuit_service_pb2 as circuits_pb
from toolmesh.executor.v1 import executor_service_pb2 as pb
from toolmesh.executor.v1 import invocation_service_pb2 as jobs_pb
from toolmesh.executor.v1 import key_service_pb2 as keys_pb
from toolmesh.executor.v1 import tool_log_service_pb2 as logs_pb

from libs.common.auth.peers import EDGE, ORCHESTRATOR
from services.executor.policy import POLICY


def test_every_rpc_has_exactly_one_row() -> None:
    services = [
        pb.DESCRIPTOR.services_by_name["ExecutorService"],
        jobs_pb.DESCRIPTOR.services_by_name["InvocationService"],
        keys_pb.DESCRIPTOR.services_by_name["KeyService"],
        logs_pb.DESCRIPTOR.services_by_name["ToolLogService"],
        circuits_pb.DESCRIPTOR.services_by_name["CircuitService"],
    ]
    assert set(POLICY) == {f"/{each.full_name}/{method.name}" for each in services for method in each.methods}


def test_a_tool_is_never_called_without_a_caller() -> None:
    row = POLICY["/toolmesh.executor.v1.ExecutorService/Invoke"]
    assert set(row.allow) == {"gateway", EDGE, ORCHESTRATOR}
    assert all(access.needs_caller for access in row.allow.values())
    assert row.deadline is not None
