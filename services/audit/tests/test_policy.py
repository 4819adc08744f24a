"""Every RPC of the contract has a row, and no row is left over."""

from __future__ import annotations

from toolmesh.audit.v1 import audit_service_pb2 as pb

from services.audit.policy import POLICY

SERVICE = pb.DESCRIPTOR.services_by_name["AuditService"]


def test_every_method_has_its_row() -> None:
    assert set(POLICY) == {f"/{SERVICE.full_name}/{method.name}" for method in SERVICE.methods}


def test_only_streams_may_stay_open() -> None:
    for method in SERVICE.methods:
        row = POLICY[f"/{SERVICE.full_name}/{method.name}"]
        assert (row.deadline is None) == method.server_streaming
