"""Who may call what."""

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

POLICY: Policy = {
    # Safe to repeat: a record id is stored once.
    _PREFIX + "AppendRecords": Row(_WRITERS, deadline=None, idempotent=True),
    _PREFIX + "GetRecord": Row(_READERS, deadline=5.0, idempotent=True),
    _PREFIX + "QueryRecords": Row(_READERS, deadline=15.0, idempotent=True),
    _PREFIX + "WatchRecords": Row(_READERS, deadline=None, idempotent=True),
    _PREFIX + "GetCheckpoint": Row(_READERS, deadline=5.0, idempotent=True),
}
