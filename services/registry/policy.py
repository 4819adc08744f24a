"""The access policy: one row per RPC. A method without a row is refused."""

from __future__ import annotations

from libs.common.auth.peers import EDGE, OPERATOR, ORCHESTRATOR, SERVICES
from libs.common.rpc.policy import AS_PEER, Access, Policy, Row, for_caller

_PREFIX = "/toolmesh.registry.v1.RegistryService/"
_LIFECYCLE = "/toolmesh.registry.v1.LifecycleService/"
_NAMESPACE = "/toolmesh.registry.v1.NamespaceService/"
_TRUST = "/toolmesh.registry.v1.TrustService/"
_DISCOVERY = "/toolmesh.registry.v1.DiscoveryService/"
# Peers that call on behalf of a caller, whose token decides.
_CARRIERS = (EDGE, ORCHESTRATOR, "gateway")
_ITSELF: dict[str, Access] = dict.fromkeys((*SERVICES, OPERATOR), AS_PEER)


def _for_callers(scope: str) -> dict[str, Access]:
    return dict.fromkeys(_CARRIERS, for_caller(scope))


# The gateway is a service too, but it reads on behalf of a caller.
_READERS = _ITSELF | _for_callers("tools:read")

POLICY: Policy = {
    _PREFIX + "RegisterTool": Row(
        {OPERATOR: AS_PEER, "executor": AS_PEER} | _for_callers("tools:register"), deadline=5.0, idempotent=True
    ),
    _PREFIX + "GetTool": Row(_READERS, deadline=2.0, idempotent=True),
    _PREFIX + "ListTools": Row(_READERS, deadline=5.0, idempotent=True),
    _PREFIX + "ResolveTool": Row(_READERS, deadline=2.0, idempotent=True),
    _PREFIX + "ListToolVersions": Row(_READERS, deadline=5.0, idempotent=True),
    # Proofs take a while, within their budget.
    _PREFIX + "CheckCompatibility": Row(_READERS, deadline=10.0, idempotent=True),
    _PREFIX + "NegotiateSchema": Row(_READERS, deadline=10.0, idempotent=True),
    _PREFIX + "WatchTools": Row(_ITSELF, deadline=None, idempotent=True),
    **{
        _LIFECYCLE + verb: Row({OPERATOR: AS_PEER} | _for_callers("tools:admin"), deadline=5.0, idempotent=False)
        for verb in (
            "PublishVersion",
            "DeprecateVersion",
            "UndeprecateVersion",
            "SunsetVersion",
            "DisableTool",
            "EnableTool",
            "ReleaseTool",
            "MarkRequiresSetup",
            "CompleteSetup",
            "DeferVersion",
            "LoadVersion",
        )
    },
    # Reads usage from the audit service first.
    _LIFECYCLE + "RemoveVersion": Row(
        {OPERATOR: AS_PEER} | _for_callers("tools:admin"), deadline=10.0, idempotent=False
    ),
    _LIFECYCLE + "QuarantineTool": Row(
        {OPERATOR: AS_PEER, "executor": AS_PEER} | _for_callers("tools:admin"), deadline=5.0, idempotent=False
    ),
    _LIFECYCLE + "ListTransitions": Row(_READERS, deadline=5.0, idempotent=True),
    _NAMESPACE + "ClaimNamespace": Row({OPERATOR: AS_PEER}, deadline=5.0, idempotent=True),
    _NAMESPACE + "TransferNamespace": Row({OPERATOR: AS_PEER}, deadline=5.0, idempotent=True),
    _NAMESPACE + "AddDelegate": Row(
        {OPERATOR: AS_PEER} | _for_callers("tools:register"), deadline=5.0, idempotent=True
    ),
    _NAMESPACE + "RemoveDelegate": Row(
        {OPERATOR: AS_PEER} | _for_callers("tools:register"), deadline=5.0, idempotent=True
    ),
    _NAMESPACE + "GetNamespace": Row(_READERS, deadline=2.0, idempotent=True),
    _NAMESPACE + "ListNamespaces": Row(_READERS, deadline=5.0, idempotent=True),
    _NAMESPACE + "MoveAlias": Row({OPERATOR: AS_PEER} | _for_callers("tools:register"), deadline=5.0, idempotent=True),
    _TRUST + "GetTrustScore": Row(_READERS, deadline=10.0, idempotent=True),
    # Callers of tools may rate them.
    _TRUST + "RateTool": Row({OPERATOR: AS_PEER} | _for_callers("tools:call"), deadline=10.0, idempotent=True),
    _TRUST + "RecordSecurityAudit": Row(
        {OPERATOR: AS_PEER} | _for_callers("tools:admin"), deadline=10.0, idempotent=False
    ),
    _TRUST + "RecordVerification": Row(
        {OPERATOR: AS_PEER} | _for_callers("tools:admin"), deadline=10.0, idempotent=False
    ),
    _TRUST + "GetStage": Row(_READERS, deadline=10.0, idempotent=True),
    _TRUST + "PromoteTool": Row({OPERATOR: AS_PEER} | _for_callers("tools:admin"), deadline=10.0, idempotent=False),
    _TRUST + "DemoteTool": Row({OPERATOR: AS_PEER} | _for_callers("tools:admin"), deadline=10.0, idempotent=True),
    _TRUST + "RevokeTool": Row({OPERATOR: AS_PEER} | _for_callers("tools:admin"), deadline=5.0, idempotent=True),
    _TRUST + "ReinstateTool": Row({OPERATOR: AS_PEER}, deadline=5.0, idempotent=False),
    # After idle time the first search waits for the language process to start.
    _DISCOVERY + "SearchTools": Row(_READERS, deadline=10.0, idempotent=True),
    _DISCOVERY + "CompileSurface": Row(_READERS, deadline=10.0, idempotent=True),
    _DISCOVERY + "GetToolSchemas": Row(_READERS, deadline=10.0, idempotent=True),
}
