"""The access policy of every RPC."""

from __future__ import annotations

from toolmesh.authz.v1 import authz_service_pb2 as pb
from toolmesh.authz.v1 import policy_service_pb2, token_service_pb2

from libs.common.auth.peers import EDGE, OPERATOR, ORCHESTRATOR, SERVICES
from libs.common.rpc.policy import ANY_PEER
from services.authz.policy import POLICY

SERVICE = pb.DESCRIPTOR.services_by_name["AuthzService"]
TOKENS = token_service_pb2.DESCRIPTOR.services_by_name["TokenService"]
POLICIES = policy_service_pb2.DESCRIPTOR.services_by_name["PolicyService"]


def test_each_rpc_has_a_row_and_each_row_an_rpc() -> None:
    services = (SERVICE, TOKENS, POLICIES)
    assert set(POLICY) == {f"/{service.full_name}/{method.name}" for service in services for method in service.methods}


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


def test_making_tokens_and_going_back_must_not_be_repeated() -> None:
    once = {name.rsplit("/", 1)[1] for name, row in POLICY.items() if not row.idempotent}
    assert once >= {"IssueToken", "DelegateToken", "NarrowToken", "ExchangeToken", "RollbackPolicySet"}
    assert once.isdisjoint({"Check", "BatchCheck", "FilterTools", "PutPolicy", "ActivatePolicySet", "ReplayPolicySet"})


def test_policies_are_changed_by_the_operator_and_by_callers_with_the_scope() -> None:
    for method, scope in {
        "PutPolicy": "policies:admin",
        "ActivatePolicySet": "policies:admin",
        "RollbackPolicySet": "policies:admin",
        "ReplayPolicySet": "policies:admin",
        "ValidatePolicy": "policies:read",
        "GetPolicySet": "policies:read",
        "ListPolicySets": "policies:read",
    }.items():
        row = POLICY[f"/{POLICIES.full_name}/{method}"]
        assert not row.allow[OPERATOR].needs_caller
        assert {peer: access.scopes for peer, access in row.allow.items() if peer != OPERATOR} == dict.fromkeys(
            (EDGE, ORCHESTRATOR, "gateway"), frozenset({scope})
        )


def test_everyone_with_a_token_may_ask_for_an_explanation() -> None:
    row = POLICY[f"/{POLICIES.full_name}/ExplainDecision"]
    assert row.allow[EDGE].needs_caller
    assert not row.allow[EDGE].scopes
