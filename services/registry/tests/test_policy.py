"""The access policy."""

from __future__ import annotations

import pytest
from toolmesh.registry.v1 import (
    discovery_service_pb2,
    lifecycle_service_pb2,
    namespace_service_pb2,
    runner_service_pb2,
    trust_service_pb2,
    upstream_service_pb2,
)
from toolmesh.registry.v1 import registry_service_pb2 as pb

from libs.common.auth.peers import EDGE, OPERATOR, ORCHESTRATOR, SERVICES
from libs.common.rpc.policy import AS_PEER, for_caller
from services.registry.policy import POLICY

SERVICE = pb.DESCRIPTOR.services_by_name["RegistryService"]


def row(method: str) -> dict[str, object]:
    return dict(POLICY[f"/{SERVICE.full_name}/{method}"].allow)


def test_every_method_has_a_row_and_every_row_a_method() -> None:
    files = (
        pb,
        discovery_service_pb2,
        lifecycle_service_pb2,
        namespace_service_pb2,
        runner_service_pb2,
        trust_service_pb2,
        upstream_service_pb2,
    )
    services = [service for file in files for service in file.DESCRIPTOR.services_by_name.values()]
    assert len(services) == 7
    assert set(POLICY) == {f"/{service.full_name}/{method.name}" for service in services for method in service.methods}


def test_only_the_streams_have_no_deadline() -> None:
    endless = [method for method, row in POLICY.items() if row.deadline is None]
    assert [method.rpartition("/")[2] for method in endless] == ["WatchTools", "WatchUpstreams"]


def test_who_may_register() -> None:
    carried = for_caller("tools:register")
    assert row("RegisterTool") == {
        OPERATOR: AS_PEER,
        "executor": AS_PEER,
        EDGE: carried,
        ORCHESTRATOR: carried,
        "gateway": carried,
    }


@pytest.mark.parametrize("method", ["GetTool", "ListTools", "ResolveTool"])
def test_who_may_read(method: str) -> None:
    carried = for_caller("tools:read")
    own = {name: AS_PEER for name in SERVICES if name != "gateway"}
    assert row(method) == {**own, OPERATOR: AS_PEER, EDGE: carried, ORCHESTRATOR: carried, "gateway": carried}


def test_who_may_watch() -> None:
    carried = for_caller("tools:read")
    own = dict.fromkeys((*SERVICES, OPERATOR), AS_PEER)
    assert row("WatchTools") == own | {EDGE: carried, ORCHESTRATOR: carried}


ADMIN = {OPERATOR: AS_PEER, EDGE: for_caller("tools:admin")} | {
    ORCHESTRATOR: for_caller("tools:admin"),
    "gateway": for_caller("tools:admin"),
}


def of(service: str, method: str) -> dict[str, object]:
    return dict(POLICY[f"/toolmesh.registry.v1.{service}/{method}"].allow)


def test_admin_rpcs_need_the_admin_scope() -> None:
    for method in (
        "PublishVersion",
        "DeprecateVersion",
        "SunsetVersion",
        "RemoveVersion",
        "DisableTool",
        "ReleaseTool",
    ):
        assert of("LifecycleService", method) == ADMIN
    assert of("LifecycleService", "QuarantineTool") == ADMIN | {"executor": AS_PEER}
    for method in ("RecordSecurityAudit", "RecordVerification", "PromoteTool", "DemoteTool", "RevokeTool"):
        assert of("TrustService", method) == ADMIN


def test_rpcs_that_only_the_operator_may_call() -> None:
    for service, method in (
        ("TrustService", "ReinstateTool"),
        ("NamespaceService", "ClaimNamespace"),
        ("NamespaceService", "TransferNamespace"),
    ):
        assert of(service, method) == {OPERATOR: AS_PEER}


def test_callers_of_tools_may_rate_them() -> None:
    assert of("TrustService", "RateTool")[EDGE] == for_caller("tools:call")
