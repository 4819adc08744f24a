"""Who may call each RPC of authz."""

from __future__ import annotations

from libs.common.auth.peers import OPERATOR, SERVICES
from libs.common.rpc.policy import ANY_PEER, AS_PEER, Policy, Row, for_caller

_PREFIX = "/toolmesh.authz.v1.AuthzService/"

POLICY: Policy = {
    # Minting makes authority out of nothing, so no service may do it, whatever token it holds.
    _PREFIX + "IssueToken": Row({OPERATOR: AS_PEER}, deadline=5.0, idempotent=False),
    _PREFIX + "IntrospectToken": Row(
        {OPERATOR: AS_PEER} | dict.fromkeys(SERVICES, AS_PEER), deadline=2.0, idempotent=True
    ),
    _PREFIX + "GetJwks": Row({ANY_PEER: AS_PEER}, deadline=2.0, idempotent=True),
    # Without the caller's own token there is nobody to decide about.
    _PREFIX + "Check": Row({"executor": for_caller(), "gateway": for_caller()}, deadline=2.0, idempotent=True),
}
