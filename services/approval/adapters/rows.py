"""Converts tickets to database rows and back."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from services.approval.domain.model import Requester, Ticket, TicketDraft, Verdict
from services.approval.domain.states import TicketState

_DRAFT = (
    *("request_id", "tool_version", "tool_digest", "arguments_digest", "redacted_arguments", "invocation", "decision"),
    *("policy_set_version", "reason", "quorum", "lifetime"),
)


def to_row(ticket: Ticket) -> dict[str, Any]:
    """Return the columns of a ticket."""
    draft = ticket.draft
    return {
        "ticket_id": ticket.ticket_id,
        **{name: getattr(draft, name) for name in _DRAFT},
        "requester": _requester_json(draft.requester),
        "escalation_chain": list(draft.escalation_chain),
        "create_time": ticket.create_time,
        "expire_time": ticket.expire_time,
        **mutable_columns(ticket),
    }


def mutable_columns(ticket: Ticket) -> dict[str, Any]:
    """Return the columns that a transition may change."""
    return {
        "state": ticket.state.value,
        "revision": ticket.revision,
        "preview": ticket.preview,
        "escalation_index": ticket.escalation_index,
        "verdicts": [{**asdict(v), "decide_time": v.decide_time.isoformat()} for v in ticket.verdicts],
        "resolve_time": ticket.resolve_time,
        "redeem_time": ticket.redeem_time,
    }


def from_row(row: Any) -> Ticket:
    """Return the ticket of a row."""
    return Ticket(
        ticket_id=row.ticket_id,
        draft=TicketDraft(
            **{name: getattr(row, name) for name in _DRAFT},
            requester=_requester(row.requester),
            escalation_chain=tuple(row.escalation_chain),
        ),
        state=TicketState(row.state),
        revision=row.revision,
        create_time=row.create_time,
        expire_time=row.expire_time,
        preview=row.preview,
        escalation_index=row.escalation_index,
        verdicts=tuple(
            Verdict(v["approver"], v["approved"], v["comment"], datetime.fromisoformat(v["decide_time"]))
            for v in row.verdicts
        ),
        resolve_time=row.resolve_time,
        redeem_time=row.redeem_time,
    )


def _requester_json(requester: Requester) -> dict[str, Any]:
    expire_time = requester.expire_time
    return {**asdict(requester), "expire_time": None if expire_time is None else expire_time.isoformat()}


def _requester(stored: dict[str, Any]) -> Requester:
    expire_time = stored["expire_time"]
    return Requester(
        **{
            **stored,
            "delegation_chain": tuple((subject, token_id) for subject, token_id in stored["delegation_chain"]),
            "scopes": tuple(stored["scopes"]),
            "expire_time": None if expire_time is None else datetime.fromisoformat(expire_time),
        }
    )
