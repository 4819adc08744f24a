"""The access policy of the executor's RPCs."""

from __future__ import annotations

from libs.common.auth.peers import EDGE, OPERATOR, ORCHESTRATOR
from libs.common.rpc.policy import AS_PEER, Policy, Row, Tenancy, for_caller

_PREFIX = "/toolmesh.executor.v1.ExecutorService/"

# No scopes here: the tool's manifest names them, and a refusal for a missing scope is recorded in the audit log.
_CALLERS = {"gateway": for_caller(), EDGE: for_caller(), ORCHESTRATOR: for_caller()}
_KEYS = "/toolmesh.executor.v1.KeyService/"
_KEY_READERS = {OPERATOR: AS_PEER} | dict.fromkeys(_CALLERS, for_caller("keys:read"))
_KEY_ADMINS = {OPERATOR: AS_PEER} | dict.fromkeys(_CALLERS, for_caller("keys:admin"))
_INVOCATIONS = "/toolmesh.executor.v1.InvocationService/"
_LOGS = "/toolmesh.executor.v1.ToolLogService/"
_LOG_READERS = {OPERATOR: AS_PEER} | dict.fromkeys(_CALLERS, for_caller("tools:logs"))
_CIRCUITS = "/toolmesh.executor.v1.CircuitService/"
# The deadline of the longest synchronous timeout class; the limits of other tools are shorter.
_MAX_SECONDS = 300.0

POLICY: Policy = {
    _PREFIX + "Invoke": Row(_CALLERS, deadline=_MAX_SECONDS, idempotent=False, tenancy=Tenancy.OWN),
    _PREFIX + "InvokeGroup": Row(_CALLERS, deadline=_MAX_SECONDS, idempotent=False, tenancy=Tenancy.OWN),
    _PREFIX + "PreviewInvocation": Row(_CALLERS, deadline=_MAX_SECONDS, idempotent=True, tenancy=Tenancy.OWN),
    _INVOCATIONS + "StartInvocation": Row(_CALLERS, deadline=30.0, idempotent=False, tenancy=Tenancy.OWN),
    _INVOCATIONS + "GetInvocation": Row(_CALLERS, deadline=5.0, idempotent=True, tenancy=Tenancy.OWN),
    _INVOCATIONS + "ListInvocations": Row(_CALLERS, deadline=10.0, idempotent=True, tenancy=Tenancy.OWN),
    _INVOCATIONS + "WaitInvocation": Row(_CALLERS, deadline=_MAX_SECONDS, idempotent=True, tenancy=Tenancy.OWN),
    _INVOCATIONS + "CancelInvocation": Row(_CALLERS, deadline=5.0, idempotent=True, tenancy=Tenancy.OWN),
    _INVOCATIONS + "WatchInvocation": Row(_CALLERS, deadline=None, idempotent=True, tenancy=Tenancy.OWN),
    _INVOCATIONS + "StreamInvocation": Row(_CALLERS, deadline=None, idempotent=False, tenancy=Tenancy.OWN),
    _INVOCATIONS + "ResumeInvocation": Row(_CALLERS, deadline=30.0, idempotent=False, tenancy=Tenancy.OWN),
    _INVOCATIONS + "ListCheckpoints": Row(_CALLERS, deadline=10.0, idempotent=True, tenancy=Tenancy.OWN),
    _INVOCATIONS + "DeleteCheckpoint": Row(_CALLERS, deadline=10.0, idempotent=True, tenancy=Tenancy.OWN),
    _INVOCATIONS + "ListCallbackDeliveries": Row(_CALLERS, deadline=10.0, idempotent=True, tenancy=Tenancy.OWN),
    _INVOCATIONS + "RedeliverCallback": Row(_CALLERS, deadline=5.0, idempotent=True, tenancy=Tenancy.OWN),
    _KEYS + "ListKeys": Row(_KEY_READERS, deadline=10.0, idempotent=True, tenancy=Tenancy.OWN),
    _KEYS + "GetKey": Row(_KEY_READERS, deadline=5.0, idempotent=True, tenancy=Tenancy.OWN),
    _KEYS + "SettleKey": Row(_KEY_ADMINS, deadline=10.0, idempotent=False, tenancy=Tenancy.OWN),
    _PREFIX + "FetchResult": Row(_CALLERS, deadline=60.0, idempotent=True, tenancy=Tenancy.OWN),
    _PREFIX + "WatchResources": Row(_CALLERS, deadline=None, idempotent=True, tenancy=Tenancy.OWN),
    _LOGS + "ListToolLogs": Row(_LOG_READERS, deadline=10.0, idempotent=True, tenancy=Tenancy.OWN),
    # Its names and limits show tenants.
    _CIRCUITS + "ListCircuits": Row({OPERATOR: AS_PEER}, deadline=5.0, idempotent=True, tenancy=Tenancy.NO_CALLER),
}
