"""Every RPC has a policy row, and every row has an RPC."""

from __future__ import annotations

from toolmesh.audit.v1 import audit_service_pb2, log_service_pb2, usage_service_pb2

from services.audit.policy import POLICY

FILES = (audit_service_pb2, log_service_pb2, usage_service_pb2)
METHODS = {
    f"/{service.full_name}/{method.name}": method
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}


def test_every_method_has_its_row() -> None:
    assert set(POLICY) == set(METHODS)


def test_only_streams_may_stay_open() -> None:
    assert [name for name, row in POLICY.items() if row.deadline is None and not METHODS[name].server_streaming] == []
