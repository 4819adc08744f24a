"""The audit records of tickets: one act for each step, and one for each refused attempt."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from libs.audit_client.act import Act, ActKind
from libs.common.errors import MeshError
from services.approval.domain.model import Step, StepKind, Ticket
from services.approval.domain.states import TicketState

_KINDS: Mapping[StepKind, ActKind] = {
    StepKind.CREATED: ActKind.TICKET_CREATED,
    StepKind.VOTE_APPROVED: ActKind.TICKET_VOTED,
    StepKind.VOTE_DENIED: ActKind.TICKET_VOTED,
    StepKind.APPROVED: ActKind.TICKET_VOTED,
    StepKind.ESCALATED: ActKind.TICKET_ESCALATED,
    StepKind.AUTO_DENIED: ActKind.TICKET_CLOSED,
    StepKind.CANCELED: ActKind.TICKET_CLOSED,
    StepKind.EXPIRED: ActKind.TICKET_CLOSED,
    StepKind.REDEEMED: ActKind.TICKET_REDEEMED,
    StepKind.OVERRIDDEN: ActKind.TICKET_OVERRIDDEN,
    StepKind.REVIEWED: ActKind.TICKET_REVIEWED,
}
# The state after a step; other steps do not change it.
STATES_AFTER: Mapping[StepKind, TicketState] = {
    StepKind.CREATED: TicketState.PENDING,
    StepKind.VOTE_DENIED: TicketState.DENIED,
    StepKind.APPROVED: TicketState.APPROVED,
    StepKind.OVERRIDDEN: TicketState.APPROVED,
    StepKind.AUTO_DENIED: TicketState.AUTO_DENIED,
    StepKind.CANCELED: TicketState.CANCELED,
    StepKind.EXPIRED: TicketState.EXPIRED,
    StepKind.REDEEMED: TicketState.REDEEMED,
}
# Steps of the requester, which the executor takes on its behalf. Those of approvers name the caller of the RPC.
_OF_REQUESTER = frozenset({StepKind.CREATED, StepKind.REDEEMED})


def step_act(ticket: Ticket, step: Step, previous_state: str) -> Act:
    """Return the act of one step of a ticket, which was in this state before; empty for a new one."""
    draft = ticket.draft
    return Act(
        kind=_KINDS[step.kind],
        resource=ticket.name,
        time=step.time,
        before=draft.call_digest,
        after=draft.call_digest,
        reason=step.detail,
        previous_state=previous_state,
        state=STATES_AFTER.get(step.kind, previous_state),
        tool_version=draft.tool_version,
        tool_digest=draft.tool_digest,
        details={
            "step": step.kind.value,
            "number": step.number,
            "arguments_digest": draft.arguments_digest,
            "policy_set_version": draft.policy_set_version,
            "groups": list(ticket.groups),
            "quorum": draft.quorum,
        },
        subject=draft.requester.subject if step.kind in _OF_REQUESTER else "",
        tenant=draft.requester.tenant,
        ticket=ticket.name,
        invocation_id=draft.invocation.removeprefix("invocations/"),
    )


def refusal_act(ticket: Ticket, verb: str, error: MeshError, time: datetime) -> Act:
    """Return the act of a refused attempt."""
    draft = ticket.draft
    return Act(
        kind=ActKind.TICKET_REFUSED,
        resource=ticket.name,
        time=time,
        reason=error.reason.name,
        previous_state=ticket.state.value,
        state=ticket.state.value,
        tool_version=draft.tool_version,
        tool_digest=draft.tool_digest,
        details={"verb": verb, "code": error.row.code},
        tenant=draft.requester.tenant,
        ticket=ticket.name,
        invocation_id=draft.invocation.removeprefix("invocations/"),
    )
