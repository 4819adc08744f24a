"""The access policy of authz: the callers, deadline and idempotency of each RPC."""

from __future__ import annotations

from libs.common.auth.peers import EDGE, OPERATOR, ORCHESTRATOR, SERVICES
from libs.common.rpc.policy import ANY_PEER, AS_PEER, Policy, Row, Tenancy, for_caller

_PREFIX = "/toolmesh.authz.v1.AuthzService/"
_TOKENS = "/toolmesh.authz.v1.TokenService/"
_POLICIES = "/toolmesh.authz.v1.PolicyService/"
_CALLERS = (EDGE, ORCHESTRATOR, "gateway")
_POLICY_ADMINS = {OPERATOR: AS_PEER} | dict.fromkeys(_CALLERS, for_caller("policies:admin"))
_POLICY_READERS = {OPERATOR: AS_PEER} | dict.fromkeys(_CALLERS, for_caller("policies:read"))

POLICY: Policy = {
    # Issues root tokens, so no service may call it, whatever token it has.
    _PREFIX + "IssueToken": Row({OPERATOR: AS_PEER}, deadline=5.0, idempotent=False, tenancy=Tenancy.NO_CALLER),
    _PREFIX + "IntrospectToken": Row(
        {OPERATOR: AS_PEER} | dict.fromkeys(SERVICES, AS_PEER), deadline=2.0, idempotent=True, tenancy=Tenancy.NO_CALLER
    ),
    _PREFIX + "GetJwks": Row({ANY_PEER: AS_PEER}, deadline=2.0, idempotent=True, tenancy=Tenancy.NO_CALLER),
    # The decision is about the caller's own token.
    _PREFIX + "Check": Row(
        {"executor": for_caller(), "gateway": for_caller()}, deadline=2.0, idempotent=True, tenancy=Tenancy.OWN
    ),
    _PREFIX + "BatchCheck": Row(
        {"executor": for_caller(), "gateway": for_caller()}, deadline=5.0, idempotent=True, tenancy=Tenancy.OWN
    ),
    _PREFIX + "FilterTools": Row(
        dict.fromkeys(("registry", "executor", "gateway"), for_caller()),
        deadline=5.0,
        idempotent=True,
        tenancy=Tenancy.OWN,
    ),
    # Needs only the external token: its holder has no mesh token yet.
    _TOKENS + "ExchangeToken": Row(
        dict.fromkeys((*_CALLERS, OPERATOR), AS_PEER), deadline=10.0, idempotent=False, tenancy=Tenancy.NO_CALLER
    ),
    _TOKENS + "DelegateToken": Row(
        dict.fromkeys(_CALLERS, for_caller()), deadline=10.0, idempotent=False, tenancy=Tenancy.OWN
    ),
    _TOKENS + "NarrowToken": Row(
        dict.fromkeys(_CALLERS, for_caller()), deadline=5.0, idempotent=False, tenancy=Tenancy.OWN
    ),
    # About the caller's own token, for the server that a tool's credential names.
    _TOKENS + "IssueAssertion": Row({"executor": for_caller()}, deadline=5.0, idempotent=True, tenancy=Tenancy.OWN),
    # The domain checks whether the caller may revoke the target; the administrator's scope allows all targets of its
    # tenant.
    _TOKENS + "RevokeToken": Row(
        {OPERATOR: AS_PEER} | dict.fromkeys(_CALLERS, for_caller()), deadline=5.0, idempotent=False, tenancy=Tenancy.OWN
    ),
    _TOKENS + "ListRevocations": Row(
        {OPERATOR: AS_PEER} | dict.fromkeys(_CALLERS, for_caller("authz:admin")),
        deadline=5.0,
        idempotent=True,
        tenancy=Tenancy.OWN,
    ),
    _TOKENS + "WatchInvalidations": Row(
        dict.fromkeys(SERVICES, AS_PEER), deadline=None, idempotent=True, tenancy=Tenancy.NO_CALLER
    ),
    # One policy set decides for all tenants. Validating large sets takes long.
    _POLICIES + "PutPolicy": Row(_POLICY_ADMINS, deadline=30.0, idempotent=True, tenancy=Tenancy.MESH_WIDE),
    _POLICIES + "ValidatePolicy": Row(_POLICY_READERS, deadline=30.0, idempotent=True, tenancy=Tenancy.MESH_WIDE),
    _POLICIES + "GetPolicySet": Row(_POLICY_READERS, deadline=5.0, idempotent=True, tenancy=Tenancy.MESH_WIDE),
    _POLICIES + "ListPolicySets": Row(_POLICY_READERS, deadline=5.0, idempotent=True, tenancy=Tenancy.MESH_WIDE),
    _POLICIES + "ActivatePolicySet": Row(_POLICY_ADMINS, deadline=30.0, idempotent=True, tenancy=Tenancy.MESH_WIDE),
    _POLICIES + "RollbackPolicySet": Row(_POLICY_ADMINS, deadline=30.0, idempotent=False, tenancy=Tenancy.MESH_WIDE),
    # Callers may explain decisions about themselves, which the domain checks.
    _POLICIES + "ExplainDecision": Row(
        {OPERATOR: AS_PEER} | dict.fromkeys(_CALLERS, for_caller()), deadline=10.0, idempotent=True, tenancy=Tenancy.OWN
    ),
    _POLICIES + "ReplayPolicySet": Row(_POLICY_ADMINS, deadline=300.0, idempotent=True, tenancy=Tenancy.MESH_WIDE),
    # Documents that are not stored yet are compiled like those of ValidatePolicy.
    _POLICIES + "AskPolicySet": Row(_POLICY_READERS, deadline=30.0, idempotent=True, tenancy=Tenancy.MESH_WIDE),
}
