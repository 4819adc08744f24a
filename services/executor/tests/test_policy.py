"""Every RPC has a row, and the row is what the contract says."""

from __future__ import annotations

from toolmesh.executor.v1 import executor_service_pb2 as pb

from libs.common.auth.peers import EDGE, ORCHESTRATOR
from services.executor.policy import POLICY


def test_every_rpc_has_exactly_one_row() -> None:
    service = pb.DESCRIPTOR.services_by_name["ExecutorService"]
    assert set(POLICY) == {f"/{service.full_name}/{method.name}" for method in service.methods}


def test_nobody_calls_a_tool_without_a_caller() -> None:
    row = POLICY["/toolmesh.executor.v1.ExecutorService/Invoke"]
    assert set(row.allow) == {"gateway", EDGE, ORCHESTRATOR}
    assert all(access.needs_caller for access in row.allow.values())
    assert row.deadline is not None
