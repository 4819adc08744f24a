"""Every RPC of the contract has a row, and the rows say what the contract says."""

from __future__ import annotations

from toolmesh.authz.v1 import authz_service_pb2 as pb

from libs.common.auth.peers import EDGE, OPERATOR, ORCHESTRATOR, SERVICES
from libs.common.rpc.policy import ANY_PEER
from services.authz.policy import POLICY

SERVICE = pb.DESCRIPTOR.services_by_name["AuthzService"]


def test_each_rpc_has_a_row_and_each_row_an_rpc() -> None:
    assert set(POLICY) == {f"/{SERVICE.full_name}/{method.name}" for method in SERVICE.methods}


def allowed(method: str) -> dict[str, bool]:
    row = POLICY[f"/{SERVICE.full_name}/{method}"]
    return {peer: access.needs_caller for peer, access in row.allow.items()}


def test_only_the_operator_mints() -> None:
    assert allowed("IssueToken") == {OPERATOR: False}


def test_services_and_the_operator_introspect() -> None:
    assert allowed("IntrospectToken") == dict.fromkeys([*SERVICES, OPERATOR], False)
    assert {EDGE, ORCHESTRATOR}.isdisjoint(allowed("IntrospectToken"))


def test_every_peer_reads_the_public_keys() -> None:
    assert allowed("GetJwks") == {ANY_PEER: False}


def test_checks_are_made_for_a_caller() -> None:
    assert allowed("Check") == {"executor": True, "gateway": True}


def test_minting_is_the_only_rpc_that_must_not_be_repeated() -> None:
    assert [name.rsplit("/", 1)[1] for name, row in POLICY.items() if not row.idempotent] == ["IssueToken"]
