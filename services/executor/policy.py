"""The access policy of the executor's RPCs."""

from __future__ import annotations

from libs.common.auth.peers import EDGE, OPERATOR, ORCHESTRATOR
from libs.common.rpc.policy import AS_PEER, Policy, Row, Tenancy, for_caller

_PREFIX = "/toolmesh.executor.v1.ExecutorService/"

# No scopes here: the tool's manifest names them, and a refusal for a missing scope is recorded in the audit log.
_CALLERS = {"gateway": for_caller(), EDGE: for_caller(), ORCHESTRATOR: for_caller()}
_LOGS = "/toolmesh.executor.v1.ToolLogService/"
_LOG_READERS = {OPERATOR: AS_PEER} | dict.fromkeys(_CALLERS, for_caller("tools:logs"))
# The deadline of the longest synchronous timeout class; the limits of other tools are shorter.
_MAX_SECONDS = 300.0

POLICY: Policy = {
    _PREFIX + "Invoke": Row(_CALLERS, deadline=_MAX_SECONDS, idempotent=False, tenancy=Tenancy.OWN),
    _PREFIX + "InvokeGroup": Row(_CALLERS, deadline=_MAX_SECONDS, idempotent=False, tenancy=Tenancy.OWN),
    _PREFIX + "PreviewInvocation": Row(_CALLERS, deadline=_MAX_SECONDS, idempotent=True, tenancy=Tenancy.OWN),
    _PREFIX + "FetchResult": Row(_CALLERS, deadline=60.0, idempotent=True, tenancy=Tenancy.OWN),
    _LOGS + "ListToolLogs": Row(_LOG_READERS, deadline=10.0, idempotent=True, tenancy=Tenancy.OWN),
}
