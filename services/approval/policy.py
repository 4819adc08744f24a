"""The access policy of approval: one row for each RPC. A method without a row is refused."""

from __future__ import annotations

from libs.common.auth.peers import EDGE, OPERATOR, ORCHESTRATOR
from libs.common.rpc.policy import AS_PEER, Access, Policy, Row, Tenancy, for_caller

_PREFIX = "/toolmesh.approval.v1.ApprovalService/"
_EXECUTOR = "executor"


def _through(access: Access) -> dict[str, Access]:
    """Return the peers that act for a caller with a token."""
    return {EDGE: access, ORCHESTRATOR: access, "gateway": access}


# Callers without a scope see the tickets that they requested, and those that ask their groups.
_READERS: dict[str, Access] = {_EXECUTOR: AS_PEER, OPERATOR: AS_PEER} | _through(for_caller())
_APPROVERS = _through(for_caller("approvals:decide"))
_OVERRIDERS = _through(for_caller("approvals:override"))

POLICY: Policy = {
    # Only the executor knows that a call really waits; any other ticket could deceive the approver.
    _PREFIX + "CreateTicket": Row({_EXECUTOR: AS_PEER}, deadline=5.0, idempotent=True, tenancy=Tenancy.NO_CALLER),
    _PREFIX + "GetTicket": Row(_READERS, deadline=5.0, idempotent=True, tenancy=Tenancy.OWN),
    _PREFIX + "ListTickets": Row(_READERS, deadline=10.0, idempotent=True, tenancy=Tenancy.OWN),
    _PREFIX + "WatchTickets": Row(_READERS, deadline=None, idempotent=True, tenancy=Tenancy.OWN),
    _PREFIX + "ApproveTicket": Row(_APPROVERS, deadline=5.0, idempotent=True, tenancy=Tenancy.OWN),
    _PREFIX + "DenyTicket": Row(_APPROVERS, deadline=5.0, idempotent=True, tenancy=Tenancy.OWN),
    _PREFIX + "CancelTicket": Row(_READERS, deadline=5.0, idempotent=True, tenancy=Tenancy.OWN),
    # Only the executor runs calls, so only it can use an approval.
    _PREFIX + "RedeemTicket": Row({_EXECUTOR: AS_PEER}, deadline=5.0, idempotent=True, tenancy=Tenancy.NO_CALLER),
    _PREFIX + "OverrideTicket": Row(_OVERRIDERS, deadline=5.0, idempotent=True, tenancy=Tenancy.OWN),
    _PREFIX + "ReviewOverride": Row(_APPROVERS, deadline=5.0, idempotent=True, tenancy=Tenancy.OWN),
    # Not idempotent: a link works once for each person.
    _PREFIX + "OpenTicketLink": Row(_APPROVERS, deadline=5.0, idempotent=False, tenancy=Tenancy.OWN),
}
