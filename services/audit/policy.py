"""Access policy: who may call each RPC, its default deadline, and whether it is idempotent."""

from __future__ import annotations

from libs.common.auth.peers import EDGE, OPERATOR, ORCHESTRATOR, SERVICES
from libs.common.rpc.policy import AS_PEER, Policy, Row, for_caller

_PREFIX = "/toolmesh.audit.v1.AuditService/"
_WRITERS = dict.fromkeys(SERVICES, AS_PEER)
_READERS = {
    OPERATOR: AS_PEER,
    EDGE: for_caller("audit:read"),
    ORCHESTRATOR: for_caller("audit:read"),
    "gateway": for_caller("audit:read"),
}

# Exports, and everything about the log as a whole, concern the records of all tenants.
_LOG_READERS = {
    OPERATOR: AS_PEER,
    EDGE: for_caller("audit:read", tenants=False),
    ORCHESTRATOR: for_caller("audit:read", tenants=False),
    "gateway": for_caller("audit:read", tenants=False),
}

_USAGE = "/toolmesh.audit.v1.UsageService/"
# Services read usage for their own decisions; the gateway only on behalf of its callers.
_USAGE_READERS = {**dict.fromkeys(SERVICES, AS_PEER), **_READERS}

_LOG = "/toolmesh.audit.v1.LogService/"
_ADMINS = {
    OPERATOR: AS_PEER,
    EDGE: for_caller("audit:admin", tenants=False),
    ORCHESTRATOR: for_caller("audit:admin", tenants=False),
    "gateway": for_caller("audit:admin", tenants=False),
}

POLICY: Policy = {
    # Safe to repeat: a record id is stored once.
    _PREFIX + "AppendRecords": Row(_WRITERS, deadline=None, idempotent=True),
    _PREFIX + "GetRecord": Row(_READERS, deadline=5.0, idempotent=True),
    _PREFIX + "QueryRecords": Row(_READERS, deadline=15.0, idempotent=True),
    _PREFIX + "WatchRecords": Row(_READERS, deadline=None, idempotent=True),
    _PREFIX + "GetCheckpoint": Row(_READERS, deadline=5.0, idempotent=True),
    _PREFIX + "ExportRecords": Row(_LOG_READERS, deadline=None, idempotent=True),
    _LOG + "ListCheckpoints": Row(_LOG_READERS, deadline=5.0, idempotent=True),
    # Of the caller's own records, like GetRecord; what it is proved against is the checkpoint of GetCheckpoint.
    _LOG + "GetInclusionProof": Row(_READERS, deadline=5.0, idempotent=True),
    _LOG + "GetConsistencyProof": Row(_LOG_READERS, deadline=5.0, idempotent=True),
    _LOG + "VerifyRange": Row(_LOG_READERS, deadline=60.0, idempotent=True),
    _LOG + "ListShards": Row(_LOG_READERS, deadline=5.0, idempotent=True),
    # A repeated call returns the result of the first.
    _LOG + "CloseShard": Row(_ADMINS, deadline=15.0, idempotent=True),
    _LOG + "ArchiveShard": Row(_ADMINS, deadline=15.0, idempotent=True),
    _LOG + "ListLegalHolds": Row(_LOG_READERS, deadline=5.0, idempotent=True),
    _LOG + "PlaceLegalHold": Row(_ADMINS, deadline=10.0, idempotent=True),
    _LOG + "ReleaseLegalHold": Row(_ADMINS, deadline=10.0, idempotent=True),
    _LOG + "ErasePayload": Row(_ADMINS, deadline=10.0, idempotent=True),
    _LOG + "AddCosignature": Row(_ADMINS, deadline=5.0, idempotent=True),
    _USAGE + "GetUsage": Row(_USAGE_READERS, deadline=10.0, idempotent=True),
    _USAGE + "GetToolUsage": Row(_USAGE_READERS, deadline=5.0, idempotent=True),
    _USAGE + "BatchGetToolUsage": Row(_USAGE_READERS, deadline=5.0, idempotent=True),
    _USAGE + "ListTopUsage": Row(_USAGE_READERS, deadline=15.0, idempotent=True),
}
