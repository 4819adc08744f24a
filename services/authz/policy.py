"""Who may call each RPC of authz."""

from __future__ import annotations

from libs.common.auth.peers import EDGE, OPERATOR, ORCHESTRATOR, SERVICES
from libs.common.rpc.policy import ANY_PEER, AS_PEER, Policy, Row, for_caller

_PREFIX = "/toolmesh.authz.v1.AuthzService/"
_TOKENS = "/toolmesh.authz.v1.TokenService/"
_POLICIES = "/toolmesh.authz.v1.PolicyService/"
_CALLERS = (EDGE, ORCHESTRATOR, "gateway")
_POLICY_ADMINS = {OPERATOR: AS_PEER} | dict.fromkeys(_CALLERS, for_caller("policies:admin"))
_POLICY_READERS = {OPERATOR: AS_PEER} | dict.fromkeys(_CALLERS, for_caller("policies:read"))

POLICY: Policy = {
    # Minting makes authority out of nothing, so no service may do it, whatever token it holds.
    _PREFIX + "IssueToken": Row({OPERATOR: AS_PEER}, deadline=5.0, idempotent=False),
    _PREFIX + "IntrospectToken": Row(
        {OPERATOR: AS_PEER} | dict.fromkeys(SERVICES, AS_PEER), deadline=2.0, idempotent=True
    ),
    _PREFIX + "GetJwks": Row({ANY_PEER: AS_PEER}, deadline=2.0, idempotent=True),
    # Without the caller's own token there is nobody to decide about.
    _PREFIX + "Check": Row({"executor": for_caller(), "gateway": for_caller()}, deadline=2.0, idempotent=True),
    _PREFIX + "BatchCheck": Row({"executor": for_caller(), "gateway": for_caller()}, deadline=5.0, idempotent=True),
    _PREFIX + "FilterTools": Row(
        dict.fromkeys(("registry", "executor", "gateway"), for_caller()), deadline=5.0, idempotent=True
    ),
    # The outside token is all that it asks for; whoever has one is not known here yet.
    _TOKENS + "ExchangeToken": Row(dict.fromkeys((*_CALLERS, OPERATOR), AS_PEER), deadline=10.0, idempotent=False),
    _TOKENS + "DelegateToken": Row(dict.fromkeys(_CALLERS, for_caller()), deadline=10.0, idempotent=False),
    _TOKENS + "NarrowToken": Row(dict.fromkeys(_CALLERS, for_caller()), deadline=5.0, idempotent=False),
    # Whose token it is to take back, the domain decides; an administrator's scope opens the rest.
    _TOKENS + "RevokeToken": Row(
        {OPERATOR: AS_PEER} | dict.fromkeys(_CALLERS, for_caller()), deadline=5.0, idempotent=False
    ),
    _TOKENS + "ListRevocations": Row(
        {OPERATOR: AS_PEER} | dict.fromkeys(_CALLERS, for_caller("authz:admin")), deadline=5.0, idempotent=True
    ),
    _TOKENS + "WatchInvalidations": Row(dict.fromkeys(SERVICES, AS_PEER), deadline=None, idempotent=True),
    # Large sets take a while to be checked.
    _POLICIES + "PutPolicy": Row(_POLICY_ADMINS, deadline=30.0, idempotent=True),
    _POLICIES + "ValidatePolicy": Row(_POLICY_READERS, deadline=30.0, idempotent=True),
    _POLICIES + "GetPolicySet": Row(_POLICY_READERS, deadline=5.0, idempotent=True),
    _POLICIES + "ListPolicySets": Row(_POLICY_READERS, deadline=5.0, idempotent=True),
    _POLICIES + "ActivatePolicySet": Row(_POLICY_ADMINS, deadline=30.0, idempotent=True),
    _POLICIES + "RollbackPolicySet": Row(_POLICY_ADMINS, deadline=30.0, idempotent=False),
    # Everyone may ask about themselves; the domain knows whom a decision is about.
    _POLICIES + "ExplainDecision": Row(
        {OPERATOR: AS_PEER} | dict.fromkeys(_CALLERS, for_caller()), deadline=10.0, idempotent=True
    ),
    _POLICIES + "ReplayPolicySet": Row(_POLICY_ADMINS, deadline=300.0, idempotent=True),
}
