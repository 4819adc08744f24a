"""Converts tickets to database rows and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import func

from services.approval.domain.model import Override, Requester, RiskFacts, Step, Ticket, TicketDraft, Verdict
from services.approval.domain.states import TicketState

_DRAFT = (
    *("request_id", "tool_version", "tool_digest", "arguments_digest", "redacted_arguments", "invocation", "decision"),
    *("policy_set_version", "reason", "quorum", "lifetime", "preview", "reason_required"),
)
_PLAIN = (
    *("revision", "escalation_index", "resolve_time", "redeem_time", "approval_expire_time"),
    *("redemption_id", "redeem_invocation"),
)


def to_row(ticket: Ticket) -> dict[str, Any]:
    """Return the columns of a ticket."""
    draft = ticket.draft
    return {
        "ticket_id": ticket.ticket_id,
        **{name: getattr(draft, name) for name in _DRAFT},
        "call_digest": draft.call_digest,
        "requester": _json(draft.requester),
        "risk": _json(draft.risk),
        "policies": list(draft.policies),
        "escalation_chain": list(draft.escalation_chain),
        "escalate_times": list(ticket.escalate_times),
        "create_time": ticket.create_time,
        "expire_time": ticket.expire_time,
        **mutable_columns(ticket),
    }


def mutable_columns(ticket: Ticket) -> dict[str, Any]:
    """Return the columns that a transition may change."""
    return {
        "state": ticket.state.value,
        **{name: getattr(ticket, name) for name in _PLAIN},
        "verdicts": [_json(verdict) for verdict in ticket.verdicts],
        "steps": [_json(step) for step in ticket.steps],
        "override": None if ticket.override is None else _json(ticket.override),
        "next_time": ticket.next_time,
        "update_time": func.clock_timestamp(),
    }


def from_row(row: Any) -> Ticket:
    """Return the ticket of a row."""
    return Ticket(
        ticket_id=row.ticket_id,
        draft=TicketDraft(
            **{name: getattr(row, name) for name in _DRAFT},
            requester=msgspec.convert(row.requester, Requester),
            risk=msgspec.convert(row.risk, RiskFacts),
            policies=tuple(row.policies),
            escalation_chain=tuple(row.escalation_chain),
        ),
        state=TicketState(row.state),
        create_time=row.create_time,
        expire_time=row.expire_time,
        escalate_times=tuple(row.escalate_times),
        verdicts=tuple(msgspec.convert(verdict, Verdict) for verdict in row.verdicts),
        steps=tuple(msgspec.convert(step, Step) for step in row.steps),
        override=None if row.override is None else msgspec.convert(row.override, Override),
        **{name: getattr(row, name) for name in _PLAIN},
    )


def _json(record: Requester | RiskFacts | Verdict | Step | Override) -> Mapping[str, Any]:
    values = asdict(record)
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in values.items()}
