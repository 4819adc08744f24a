"""The access policy of every RPC."""

from __future__ import annotations

from toolmesh.authz.v1 import authz_service_pb2, policy_service_pb2, token_service_pb2

from services.authz.policy import POLICY

SERVICES = [
    authz_service_pb2.DESCRIPTOR.services_by_name["AuthzService"],
    token_service_pb2.DESCRIPTOR.services_by_name["TokenService"],
    policy_service_pb2.DESCRIPTOR.services_by_name["PolicyService"],
]
AS_ITSELF = "as itself"
"""The peer needs no caller's token. Other values are the scopes that the caller's token must have."""
ALL_SERVICES = ("approval", "audit", "authz", "executor", "gateway", "registry")
CALLERS = ("edge", "gateway", "orchestrator")


def peers(names: tuple[str, ...], access: str) -> dict[str, str]:
    return dict.fromkeys(names, access)


def operator_and_callers(scope: str) -> dict[str, str]:
    return {"operator": AS_ITSELF} | peers(CALLERS, scope)


def actual(method: str) -> dict[str, str]:
    row = POLICY[method]
    return {
        peer: " ".join(sorted(access.scopes)) if access.needs_caller else AS_ITSELF
        for peer, access in row.allow.items()
    }


def test_each_rpc_has_a_policy_row_and_each_row_an_rpc() -> None:
    assert set(POLICY) == {f"/{service.full_name}/{method.name}" for service in SERVICES for method in service.methods}


def test_the_callers_of_every_rpc() -> None:
    assert {name.rpartition("/")[2]: actual(name) for name in POLICY} == {
        "IssueToken": {"operator": AS_ITSELF},
        "IntrospectToken": peers((*ALL_SERVICES, "operator"), AS_ITSELF),
        "GetJwks": {"*": AS_ITSELF},
        "Check": {"executor": "", "gateway": ""},
        "BatchCheck": {"executor": "", "gateway": ""},
        "FilterTools": {"registry": "", "executor": "", "gateway": ""},
        "ExchangeToken": peers((*CALLERS, "operator"), AS_ITSELF),
        "DelegateToken": peers(CALLERS, ""),
        "NarrowToken": peers(CALLERS, ""),
        "IssueAssertion": {"executor": ""},
        "RevokeToken": operator_and_callers(""),
        "ListRevocations": operator_and_callers("authz:admin"),
        "WatchInvalidations": peers(ALL_SERVICES, AS_ITSELF),
        "PutPolicy": operator_and_callers("policies:admin"),
        "ValidatePolicy": operator_and_callers("policies:read"),
        "GetPolicySet": operator_and_callers("policies:read"),
        "ListPolicySets": operator_and_callers("policies:read"),
        "ActivatePolicySet": operator_and_callers("policies:admin"),
        "RollbackPolicySet": operator_and_callers("policies:admin"),
        "ExplainDecision": operator_and_callers(""),
        "ReplayPolicySet": operator_and_callers("policies:admin"),
        "AskPolicySet": operator_and_callers("policies:read"),
    }


def test_the_rpcs_that_are_not_idempotent() -> None:
    assert {name.rpartition("/")[2] for name, row in POLICY.items() if not row.idempotent} == {
        "IssueToken",
        "ExchangeToken",
        "DelegateToken",
        "NarrowToken",
        "RevokeToken",
        "RollbackPolicySet",
    }
