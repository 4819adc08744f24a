"""CreateTicket: creates a ticket for one call."""

from __future__ import annotations

from collections.abc import Iterator

from libs.common.errors import Violation
from libs.common.ids import new_id
from libs.common.json.jsonio import parse_object
from libs.common.runtime.clock import Clock
from services.approval.domain.errors import invalid_request, request_id_taken
from services.approval.domain.model import Ticket, TicketDraft
from services.approval.domain.ports import Tickets
from services.approval.domain.states import TicketState


async def create_ticket(draft: TicketDraft, tickets: Tickets, clock: Clock) -> Ticket:
    """Create a durable ticket, or return the one that the same request created before.

    Raises ALREADY_EXISTS when the request id belongs to another call, INVALID_JSON when the arguments are not a strict
    JSON object, and INVALID_REQUEST for values that cannot be stored.
    """
    _check(draft)
    now = clock.now()
    ticket = Ticket(
        ticket_id=new_id(),
        draft=draft,
        state=TicketState.PENDING,
        revision=1,
        create_time=now,
        expire_time=now + draft.lifetime,
    )
    stored = await tickets.add(ticket)
    if stored.draft.call_digest != draft.call_digest:
        raise request_id_taken(draft.request_id)
    return stored.at(now)


def _check(draft: TicketDraft) -> None:
    parse_object(draft.redacted_arguments)
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
    requester = draft.requester
    for name in ("subject", "agent", "tenant", "tier", "token_id", "session_id", "peer"):
        yield f"requester.{name}", getattr(requester, name)
    for index, scope in enumerate(requester.scopes):
        yield f"requester.scopes[{index}]", scope
    for index, (subject, token_id) in enumerate(requester.delegation_chain):
        yield f"requester.delegation_chain[{index}]", subject + token_id
