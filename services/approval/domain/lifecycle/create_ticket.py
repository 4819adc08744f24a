"""CreateTicket: creates a ticket for one call."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from libs.common.errors import Violation
from libs.common.ids import new_id
from libs.common.json.jsonio import parse_object
from services.approval.domain.errors import invalid_request, request_id_taken
from services.approval.domain.model import StepKind, Ticket, TicketDraft
from services.approval.domain.ports import Tickets
from services.approval.domain.rules import ApprovalRules
from services.approval.domain.states import TicketState


async def create_ticket(draft: TicketDraft, tickets: Tickets, rules: ApprovalRules) -> Ticket:
    """Create a durable ticket, or return the one that the same request created before, or that is open for the call.

    Raises ALREADY_EXISTS when the request id belongs to another call, INVALID_JSON when the arguments or the preview
    are not a strict JSON object, and INVALID_REQUEST for values that cannot be stored.
    """
    _check(draft)
    stored, now = await tickets.add(lambda time: new_ticket(draft, rules, time))
    if stored.draft.call_digest != draft.call_digest:
        raise request_id_taken(draft.request_id)
    return stored.at(now)


def new_ticket(draft: TicketDraft, rules: ApprovalRules, now: datetime) -> Ticket:
    """Return a pending ticket whose times follow the rules."""
    schedule = rules.schedule(len(draft.escalation_chain), draft.lifetime)
    pending = Ticket(
        ticket_id=new_id(),
        draft=draft,
        state=TicketState.PENDING,
        revision=0,
        create_time=now,
        expire_time=now + schedule.lifetime,
        escalate_times=tuple(now + offset for offset in schedule.escalations),
    )
    return pending.noted(StepKind.CREATED, now, actor=draft.requester.subject)


def _check(draft: TicketDraft) -> None:
    parse_object(draft.redacted_arguments)
    if draft.preview:
        parse_object(draft.preview)
    message = "must not contain a NUL character"
    violations = [Violation(path, "no_nul", message) for path, text in _texts(draft) if "\0" in text]
    if not draft.requester.subject:
        # Requesters may not approve their own calls, so a ticket must name its requester.
        violations.append(Violation("requester.subject", "required", "is required"))
    if violations:
        raise invalid_request(violations)


def _texts(draft: TicketDraft) -> Iterator[tuple[str, str]]:
    """Yield every text with its path. PostgreSQL stores all Unicode characters except NUL."""
    for name in (
        *("request_id", "tool_version", "tool_digest", "arguments_digest", "invocation"),
        *("decision", "policy_set_version", "reason"),
    ):
        yield name, getattr(draft, name)
    for index, group in enumerate(draft.escalation_chain):
        yield f"escalation_chain[{index}]", group
    for index, policy in enumerate(draft.policies):
        yield f"policies[{index}]", policy
    risk, requester = draft.risk, draft.requester
    listed = (*risk.tags, *risk.declared_effects, *risk.resources, *(name for name, _ in risk.scores))
    yield "risk", "".join((risk.mutation_class, risk.sandbox, *listed))
    for name in ("subject", "agent", "tenant", "tier", "token_id", "session_id", "peer"):
        yield f"requester.{name}", getattr(requester, name)
    for index, scope in enumerate(requester.scopes):
        yield f"requester.scopes[{index}]", scope
    for index, (subject, token_id) in enumerate(requester.delegation_chain):
        yield f"requester.delegation_chain[{index}]", subject + token_id
