"""Who may call what: one row per RPC, and a method without a row is refused."""

from __future__ import annotations

from libs.common.auth.peers import EDGE, OPERATOR, ORCHESTRATOR, SERVICES
from libs.common.rpc.policy import AS_PEER, Access, Policy, Row, for_caller

_PREFIX = "/toolmesh.registry.v1.RegistryService/"
# The peers that call for somebody else, whose token then decides.
_CARRIERS = (EDGE, ORCHESTRATOR, "gateway")
_ITSELF: dict[str, Access] = dict.fromkeys((*SERVICES, OPERATOR), AS_PEER)


def _for_callers(scope: str) -> dict[str, Access]:
    return dict.fromkeys(_CARRIERS, for_caller(scope))


# The gateway is a service too, but what it reads here it reads for a caller.
_READERS = _ITSELF | _for_callers("tools:read")

POLICY: Policy = {
    _PREFIX + "RegisterTool": Row(
        {OPERATOR: AS_PEER, "executor": AS_PEER} | _for_callers("tools:register"), deadline=5.0, idempotent=True
    ),
    _PREFIX + "GetTool": Row(_READERS, deadline=2.0, idempotent=True),
    _PREFIX + "ListTools": Row(_READERS, deadline=5.0, idempotent=True),
    _PREFIX + "ResolveTool": Row(_READERS, deadline=2.0, idempotent=True),
    _PREFIX + "WatchTools": Row(_ITSELF, deadline=None, idempotent=True),
}
