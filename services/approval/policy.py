"""The access policy of approval: one row for each RPC. A method without a row is refused."""

from __future__ import annotations

from libs.common.auth.peers import EDGE, OPERATOR, ORCHESTRATOR
from libs.common.rpc.policy import AS_PEER, Access, Policy, Row, Tenancy, for_caller

_PREFIX = "/toolmesh.approval.v1.ApprovalService/"
_EXECUTOR = "executor"
_READER = for_caller("approvals:read")
_READERS: dict[str, Access] = {
    _EXECUTOR: AS_PEER,
    OPERATOR: AS_PEER,
    EDGE: _READER,
    ORCHESTRATOR: _READER,
    "gateway": _READER,
}

POLICY: Policy = {
    # Only the executor knows that a call really waits; any other ticket could deceive the approver.
    _PREFIX + "CreateTicket": Row({_EXECUTOR: AS_PEER}, deadline=5.0, idempotent=True, tenancy=Tenancy.NO_CALLER),
    _PREFIX + "GetTicket": Row(_READERS, deadline=5.0, idempotent=True, tenancy=Tenancy.OWN),
    _PREFIX + "ListTickets": Row(_READERS, deadline=10.0, idempotent=True, tenancy=Tenancy.OWN),
    _PREFIX + "CancelTicket": Row(
        {_EXECUTOR: AS_PEER, OPERATOR: AS_PEER}, deadline=5.0, idempotent=True, tenancy=Tenancy.NO_CALLER
    ),
}
