"""Who may call what."""

from __future__ import annotations

from libs.common.auth.peers import EDGE, ORCHESTRATOR
from libs.common.rpc.policy import Policy, Row, for_caller

_PREFIX = "/toolmesh.executor.v1.ExecutorService/"

POLICY: Policy = {
    # No scope here: which scopes a call takes is the tool's to say, and a refusal for want of one belongs on record.
    # The deadline is that of the longest class of tools one can wait for; every other tool's own limit is tighter.
    _PREFIX + "Invoke": Row(
        {"gateway": for_caller(), EDGE: for_caller(), ORCHESTRATOR: for_caller()}, deadline=300.0, idempotent=False
    ),
}
