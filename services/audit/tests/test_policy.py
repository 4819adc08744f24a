"""Every RPC has a policy row with the expected access, and every row has an RPC."""

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
SERVICES = {"registry": "", "authz": "", "executor": "", "approval": "", "audit": ""}
READ = {"operator": "", "edge": "audit:read", "orchestrator": "audit:read", "gateway": "audit:read"}
ADMIN = {"operator": "", "edge": "audit:admin", "orchestrator": "audit:admin", "gateway": "audit:admin"}
# Peers of each RPC with the scope that their caller needs; empty: the peer calls for itself.
ACCESS = {
    "AppendRecords": {**SERVICES, "gateway": ""},
    "GetRecord": READ,
    "QueryRecords": READ,
    "WatchRecords": READ,
    "GetCheckpoint": READ,
    "ExportRecords": READ,
    "ListCheckpoints": READ,
    "GetInclusionProof": READ,
    "GetConsistencyProof": READ,
    "VerifyRange": READ,
    "ListShards": READ,
    "CloseShard": ADMIN,
    "ArchiveShard": ADMIN,
    "ListLegalHolds": READ,
    "PlaceLegalHold": ADMIN,
    "ReleaseLegalHold": ADMIN,
    "ErasePayload": ADMIN,
    "AddCosignature": ADMIN,
    "GetUsage": {**SERVICES, **READ},
    "GetToolUsage": {**SERVICES, **READ},
    "BatchGetToolUsage": {**SERVICES, **READ},
    "ListTopUsage": {**SERVICES, **READ},
}
# Callers with a tenant are refused: these concern the records of all tenants.
OF_THE_WHOLE_LOG = {"ListCheckpoints", "GetConsistencyProof", "VerifyRange", "ListShards", "ListLegalHolds"}
WITHOUT_TENANT = {"ExportRecords", *OF_THE_WHOLE_LOG, *(name for name, access in ACCESS.items() if access is ADMIN)}


def test_every_method_has_its_row() -> None:
    assert set(POLICY) == set(METHODS)


def test_only_streams_may_stay_open() -> None:
    assert [name for name, row in POLICY.items() if row.deadline is None and not METHODS[name].server_streaming] == []


def test_each_method_has_its_peers_and_scopes() -> None:
    allowed = {
        name.rsplit("/", 1)[1]: {peer: " ".join(access.scopes) for peer, access in row.allow.items()}
        for name, row in POLICY.items()
    }
    assert allowed == ACCESS


def test_methods_about_all_tenants_refuse_callers_with_a_tenant() -> None:
    refusing = {
        name.rsplit("/", 1)[1]
        for name, row in POLICY.items()
        if any(not access.tenants for access in row.allow.values())
    }
    assert refusing == WITHOUT_TENANT
