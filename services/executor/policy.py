"""Who may call what."""

from __future__ import annotations

from libs.common.auth.peers import EDGE, ORCHESTRATOR
from libs.common.rpc.policy import Policy, Row, for_caller

_PREFIX = "/toolmesh.executor.v1.ExecutorService/"

# No scope here: which scopes a call takes is the tool's to say, and a refusal for want of one belongs on record.
_CALLERS = {"gateway": for_caller(), EDGE: for_caller(), ORCHESTRATOR: for_caller()}
# That of the longest class of tools one can wait for; every other tool's own limit is tighter.
_LONGEST = 300.0

POLICY: Policy = {
    _PREFIX + "Invoke": Row(_CALLERS, deadline=_LONGEST, idempotent=False),
    _PREFIX + "InvokeGroup": Row(_CALLERS, deadline=_LONGEST, idempotent=False),
    _PREFIX + "PreviewInvocation": Row(_CALLERS, deadline=_LONGEST, idempotent=True),
    _PREFIX + "FetchResult": Row(_CALLERS, deadline=60.0, idempotent=True),
}
