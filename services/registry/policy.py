"""The access policy: one row per RPC. A method without a row is refused."""

from __future__ import annotations

from libs.common.auth.peers import EDGE, OPERATOR, ORCHESTRATOR, SERVICES
from libs.common.rpc.policy import AS_PEER, Access, Policy, Row, Tenancy, for_caller

_PREFIX = "/toolmesh.registry.v1.RegistryService/"
_LIFECYCLE = "/toolmesh.registry.v1.LifecycleService/"
_NAMESPACE = "/toolmesh.registry.v1.NamespaceService/"
_TRUST = "/toolmesh.registry.v1.TrustService/"
_DISCOVERY = "/toolmesh.registry.v1.DiscoveryService/"
_RUNNER = "/toolmesh.registry.v1.RunnerService/"
_UPSTREAM = "/toolmesh.registry.v1.UpstreamService/"
# Peers that call on behalf of a caller, whose token decides.
_CARRIERS = (EDGE, ORCHESTRATOR, "gateway")
_ITSELF: dict[str, Access] = dict.fromkeys((*SERVICES, OPERATOR), AS_PEER)


def _for_callers(scope: str) -> dict[str, Access]:
    return dict.fromkeys(_CARRIERS, for_caller(scope))


# The gateway is a service too, but it reads on behalf of a caller.
_READERS = _ITSELF | _for_callers("tools:read")
_REGISTRARS: dict[str, Access] = {OPERATOR: AS_PEER} | _for_callers("tools:register")
_ADMINS: dict[str, Access] = {OPERATOR: AS_PEER} | _for_callers("tools:admin")

# The catalogue is shared: every tenant reads all of it. A caller of a tenant changes tools only in namespaces where
# it may
# publish, and what the mesh thinks of a tool concerns all tenants.
POLICY: Policy = {
    _PREFIX + "RegisterTool": Row(
        _REGISTRARS | {"executor": AS_PEER}, deadline=5.0, idempotent=True, tenancy=Tenancy.OWN
    ),
    _PREFIX + "GetTool": Row(_READERS, deadline=2.0, idempotent=True, tenancy=Tenancy.SHARED),
    _PREFIX + "ListTools": Row(_READERS, deadline=5.0, idempotent=True, tenancy=Tenancy.SHARED),
    _PREFIX + "ResolveTool": Row(_READERS, deadline=2.0, idempotent=True, tenancy=Tenancy.SHARED),
    _PREFIX + "ListToolVersions": Row(_READERS, deadline=5.0, idempotent=True, tenancy=Tenancy.SHARED),
    # Proofs take a while, within their budget.
    _PREFIX + "CheckCompatibility": Row(_READERS, deadline=10.0, idempotent=True, tenancy=Tenancy.SHARED),
    _PREFIX + "NegotiateSchema": Row(_READERS, deadline=10.0, idempotent=True, tenancy=Tenancy.SHARED),
    # The services, the gateway among them, watch everything. A caller is shown what policy lets it call.
    _PREFIX + "WatchTools": Row(
        _ITSELF | dict.fromkeys((EDGE, ORCHESTRATOR), for_caller("tools:read")),
        deadline=None,
        idempotent=True,
        tenancy=Tenancy.SHARED,
    ),
    **{
        _LIFECYCLE + verb: Row(_ADMINS, deadline=5.0, idempotent=False, tenancy=Tenancy.OWN)
        for verb in (
            "PublishVersion",
            "DeprecateVersion",
            "UndeprecateVersion",
            "SunsetVersion",
            "DisableTool",
            "EnableTool",
            "MarkRequiresSetup",
            "CompleteSetup",
            "DeferVersion",
            "LoadVersion",
        )
    },
    # Ends a safety measure, so the owner of the tool does not decide.
    _LIFECYCLE + "ReleaseTool": Row(_ADMINS, deadline=5.0, idempotent=False, tenancy=Tenancy.MESH_WIDE),
    # Reads usage from the audit service first.
    _LIFECYCLE + "RemoveVersion": Row(_ADMINS, deadline=10.0, idempotent=False, tenancy=Tenancy.OWN),
    _LIFECYCLE + "QuarantineTool": Row(
        _ADMINS | {"executor": AS_PEER}, deadline=5.0, idempotent=False, tenancy=Tenancy.OWN
    ),
    _LIFECYCLE + "ListTransitions": Row(_READERS, deadline=5.0, idempotent=True, tenancy=Tenancy.SHARED),
    _NAMESPACE + "ClaimNamespace": Row({OPERATOR: AS_PEER}, deadline=5.0, idempotent=True, tenancy=Tenancy.NO_CALLER),
    _NAMESPACE + "TransferNamespace": Row(
        {OPERATOR: AS_PEER}, deadline=5.0, idempotent=True, tenancy=Tenancy.NO_CALLER
    ),
    _NAMESPACE + "AddDelegate": Row(_REGISTRARS, deadline=5.0, idempotent=True, tenancy=Tenancy.OWN),
    _NAMESPACE + "RemoveDelegate": Row(_REGISTRARS, deadline=5.0, idempotent=True, tenancy=Tenancy.OWN),
    _NAMESPACE + "GetNamespace": Row(_READERS, deadline=2.0, idempotent=True, tenancy=Tenancy.SHARED),
    _NAMESPACE + "ListNamespaces": Row(_READERS, deadline=5.0, idempotent=True, tenancy=Tenancy.SHARED),
    _NAMESPACE + "MoveAlias": Row(_REGISTRARS, deadline=5.0, idempotent=True, tenancy=Tenancy.OWN),
    _TRUST + "GetTrustScore": Row(_READERS, deadline=10.0, idempotent=True, tenancy=Tenancy.SHARED),
    # Callers of tools may rate them.
    _TRUST + "RateTool": Row(
        {OPERATOR: AS_PEER} | _for_callers("tools:call"), deadline=10.0, idempotent=True, tenancy=Tenancy.SHARED
    ),
    _TRUST + "RecordSecurityAudit": Row(_ADMINS, deadline=10.0, idempotent=False, tenancy=Tenancy.MESH_WIDE),
    _TRUST + "RecordVerification": Row(_ADMINS, deadline=10.0, idempotent=False, tenancy=Tenancy.MESH_WIDE),
    _TRUST + "GetStage": Row(_READERS, deadline=10.0, idempotent=True, tenancy=Tenancy.SHARED),
    _TRUST + "PromoteTool": Row(_ADMINS, deadline=10.0, idempotent=False, tenancy=Tenancy.MESH_WIDE),
    _TRUST + "DemoteTool": Row(_ADMINS, deadline=10.0, idempotent=True, tenancy=Tenancy.MESH_WIDE),
    _TRUST + "RevokeTool": Row(_ADMINS, deadline=5.0, idempotent=True, tenancy=Tenancy.MESH_WIDE),
    _TRUST + "ReinstateTool": Row({OPERATOR: AS_PEER}, deadline=5.0, idempotent=False, tenancy=Tenancy.NO_CALLER),
    # After idle time the first search waits for the language process to start.
    _DISCOVERY + "SearchTools": Row(_READERS, deadline=10.0, idempotent=True, tenancy=Tenancy.SHARED),
    _DISCOVERY + "CompileSurface": Row(_READERS, deadline=10.0, idempotent=True, tenancy=Tenancy.SHARED),
    _DISCOVERY + "GetToolSchemas": Row(_READERS, deadline=10.0, idempotent=True, tenancy=Tenancy.SHARED),
    _RUNNER + "AnnounceRunners": Row({"executor": AS_PEER}, deadline=5.0, idempotent=True, tenancy=Tenancy.NO_CALLER),
    _RUNNER + "WithdrawRunners": Row({"executor": AS_PEER}, deadline=5.0, idempotent=True, tenancy=Tenancy.NO_CALLER),
    # An upstream runs programs on executors' machines, so callers have no part in it.
    **{
        _UPSTREAM + verb: Row({OPERATOR: AS_PEER}, deadline=5.0, idempotent=True, tenancy=Tenancy.NO_CALLER)
        for verb in ("AddUpstream", "RefreshUpstream")
    },
    # They change the state of every tool of the upstream.
    **{
        _UPSTREAM + verb: Row({OPERATOR: AS_PEER}, deadline=60.0, idempotent=True, tenancy=Tenancy.NO_CALLER)
        for verb in ("AcceptChanges", "RemoveUpstream")
    },
    _UPSTREAM + "GetUpstream": Row(_ITSELF, deadline=5.0, idempotent=True, tenancy=Tenancy.NO_CALLER),
    _UPSTREAM + "ListUpstreams": Row(_ITSELF, deadline=5.0, idempotent=True, tenancy=Tenancy.NO_CALLER),
    _UPSTREAM + "WatchUpstreams": Row(
        {OPERATOR: AS_PEER, "executor": AS_PEER}, deadline=None, idempotent=True, tenancy=Tenancy.NO_CALLER
    ),
    # Registers every tool that it discovered.
    _UPSTREAM + "ReportUpstream": Row(
        {"executor": AS_PEER}, deadline=300.0, idempotent=True, tenancy=Tenancy.NO_CALLER
    ),
}
