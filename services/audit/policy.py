"""Access policy: who may call each RPC, its default deadline, and whether it is idempotent."""

from __future__ import annotations

from libs.common.auth.peers import EDGE, OPERATOR, ORCHESTRATOR, SERVICES
from libs.common.rpc.policy import AS_PEER, Policy, Row, Tenancy, for_caller

_PREFIX = "/toolmesh.audit.v1.AuditService/"
_WRITERS = dict.fromkeys(SERVICES, AS_PEER)
_READERS = {
    OPERATOR: AS_PEER,
    EDGE: for_caller("audit:read"),
    ORCHESTRATOR: for_caller("audit:read"),
    "gateway": for_caller("audit:read"),
}

_USAGE = "/toolmesh.audit.v1.UsageService/"
# Services read usage for their own decisions; the gateway only on behalf of its callers.
_USAGE_READERS = {**dict.fromkeys(SERVICES, AS_PEER), **_READERS}

_LOG = "/toolmesh.audit.v1.LogService/"
_ADMINS = {
    OPERATOR: AS_PEER,
    EDGE: for_caller("audit:admin"),
    ORCHESTRATOR: for_caller("audit:admin"),
    "gateway": for_caller("audit:admin"),
}

# What concerns the log as a whole concerns the records of all tenants. The newest checkpoint is a commitment that every
# reader must see alike.
POLICY: Policy = {
    # Safe to repeat: a record id is stored once.
    _PREFIX + "AppendRecords": Row(_WRITERS, deadline=None, idempotent=True, tenancy=Tenancy.NO_CALLER),
    _PREFIX + "GetRecord": Row(_READERS, deadline=5.0, idempotent=True, tenancy=Tenancy.OWN),
    _PREFIX + "QueryRecords": Row(_READERS, deadline=15.0, idempotent=True, tenancy=Tenancy.OWN),
    _PREFIX + "WatchRecords": Row(_READERS, deadline=None, idempotent=True, tenancy=Tenancy.OWN),
    _PREFIX + "GetCheckpoint": Row(_READERS, deadline=5.0, idempotent=True, tenancy=Tenancy.SHARED),
    _PREFIX + "ExportRecords": Row(_READERS, deadline=None, idempotent=True, tenancy=Tenancy.MESH_WIDE),
    _LOG + "ListCheckpoints": Row(_READERS, deadline=5.0, idempotent=True, tenancy=Tenancy.MESH_WIDE),
    # Of the caller's own records, like GetRecord, against the checkpoint of GetCheckpoint.
    _LOG + "GetInclusionProof": Row(_READERS, deadline=5.0, idempotent=True, tenancy=Tenancy.OWN),
    _LOG + "GetConsistencyProof": Row(_READERS, deadline=5.0, idempotent=True, tenancy=Tenancy.MESH_WIDE),
    _LOG + "VerifyRange": Row(_READERS, deadline=60.0, idempotent=True, tenancy=Tenancy.MESH_WIDE),
    _LOG + "ListShards": Row(_READERS, deadline=5.0, idempotent=True, tenancy=Tenancy.MESH_WIDE),
    # A repeated call returns the result of the first.
    _LOG + "CloseShard": Row(_ADMINS, deadline=15.0, idempotent=True, tenancy=Tenancy.MESH_WIDE),
    _LOG + "ArchiveShard": Row(_ADMINS, deadline=15.0, idempotent=True, tenancy=Tenancy.MESH_WIDE),
    _LOG + "ListLegalHolds": Row(_READERS, deadline=5.0, idempotent=True, tenancy=Tenancy.MESH_WIDE),
    _LOG + "PlaceLegalHold": Row(_ADMINS, deadline=10.0, idempotent=True, tenancy=Tenancy.MESH_WIDE),
    _LOG + "ReleaseLegalHold": Row(_ADMINS, deadline=10.0, idempotent=True, tenancy=Tenancy.MESH_WIDE),
    _LOG + "ErasePayload": Row(_ADMINS, deadline=10.0, idempotent=True, tenancy=Tenancy.MESH_WIDE),
    _LOG + "AddCosignature": Row(_ADMINS, deadline=5.0, idempotent=True, tenancy=Tenancy.MESH_WIDE),
    _USAGE + "GetUsage": Row(_USAGE_READERS, deadline=10.0, idempotent=True, tenancy=Tenancy.OWN),
    _USAGE + "GetToolUsage": Row(_USAGE_READERS, deadline=5.0, idempotent=True, tenancy=Tenancy.OWN),
    _USAGE + "BatchGetToolUsage": Row(_USAGE_READERS, deadline=5.0, idempotent=True, tenancy=Tenancy.OWN),
    _USAGE + "ListTopUsage": Row(_USAGE_READERS, deadline=15.0, idempotent=True, tenancy=Tenancy.OWN),
}
