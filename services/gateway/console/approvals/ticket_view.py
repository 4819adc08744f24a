"""Tickets as pages show them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.approval.v1 import ticket_pb2
from toolmesh.common.v1.caller_pb2 import Caller

from services.gateway.console.approvals.json_view import Change, Document, changes_between, document_of, read_object

STATES = {
    ticket_pb2.TICKET_STATE_PENDING: ("pending", "Waiting"),
    ticket_pb2.TICKET_STATE_APPROVED: ("approved", "Approved"),
    ticket_pb2.TICKET_STATE_DENIED: ("denied", "Denied"),
    ticket_pb2.TICKET_STATE_AUTO_DENIED: ("auto_denied", "Denied: no decision in time"),
    ticket_pb2.TICKET_STATE_CANCELED: ("canceled", "Withdrawn"),
    ticket_pb2.TICKET_STATE_REDEEMED: ("redeemed", "Approved and used"),
    ticket_pb2.TICKET_STATE_EXPIRED: ("expired", "Approved, not used in time"),
}
_MUTATIONS = {
    "read_only": "Reads only",
    "write_reversible": "Changes that can be undone",
    "write_irreversible": "Cannot be undone",
}
_REVIEWS = {
    ticket_pb2.REVIEW_STATE_PENDING: "waits for its review",
    ticket_pb2.REVIEW_STATE_UPHELD: "upheld",
    ticket_pb2.REVIEW_STATE_REJECTED: "rejected",
}
_STEPS = {
    "created": "Approval requested",
    "vote_approved": "Voted to approve",
    "vote_denied": "Voted to deny",
    "escalated": "Escalated to",
    "approved": "Approved",
    "denied": "Denied",
    "auto_denied": "Denied: no decision in time",
    "canceled": "Withdrawn",
    "redeemed": "The call ran with this approval",
    "expired": "The approval was not used in time",
    "overridden": "Approved without the quorum (break glass)",
    "reviewed": "Override reviewed",
}


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time."""

    iso: str
    text: str
    relative: str
    """Such as `in 5 min` or `2 h ago`."""


@dataclass(frozen=True, slots=True)
class TicketSummary:
    """One line of the list."""

    ticket_id: str
    tool: str
    version: str
    requester: str
    agent: str
    reason: str
    state: str
    state_title: str
    mutation: str
    irreversible: bool
    votes: int
    quorum: int
    created: Moment | None
    expires: Moment | None

    @property
    def pending(self) -> bool:
        """Whether it waits for a decision."""
        return self.state == "pending"

    @property
    def open(self) -> bool:
        """Whether a denial or a withdrawal still changes it."""
        return self.state in ("pending", "approved")


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the history."""

    title: str
    actor: str
    detail: str
    time: Moment | None


@dataclass(frozen=True, slots=True)
class Preview:
    """What the call would do, as far as the tool could say."""

    changes: tuple[tuple[str, str], ...]
    change_count: int
    preconditions: tuple[tuple[str, bool], ...]
    impact: Document | None
    failed: str


@dataclass(frozen=True, slots=True)
class OverrideView:
    """An approval without the quorum, and its review."""

    actor: str
    reason: str
    review: str
    open: bool
    reviewer: str
    finding: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """The difference to the last call of the tool that was approved and ran."""

    ticket_id: str
    time: Moment | None
    changes: tuple[Change, ...]


def summary_of(ticket: ticket_pb2.Ticket) -> TicketSummary:
    """Return a ticket as a line of the list."""
    tool, version = tool_of(ticket)
    state, title = STATES.get(ticket.state, ("unknown", "Unknown"))
    mutation = ticket.risk.mutation_class
    return TicketSummary(
        ticket_id=ticket.name.removeprefix("tickets/"),
        tool=tool,
        version=version,
        requester=ticket.requester.subject,
        agent=ticket.requester.agent,
        reason=ticket.reason,
        state=state,
        state_title=title,
        mutation=_MUTATIONS.get(mutation, mutation),
        irreversible=mutation == "write_irreversible",
        votes=sum(verdict.approved for verdict in ticket.verdicts),
        quorum=max(1, ticket.quorum),
        created=_moment(ticket, "create_time"),
        expires=_moment(ticket, "expire_time"),
    )


def tool_of(ticket: ticket_pb2.Ticket) -> tuple[str, str]:
    """Return the tool and the version, of `tools/{tool}/versions/{version}`."""
    tool, _, version = ticket.tool_version.removeprefix("tools/").partition("/versions/")
    return tool, version


def page_of(ticket: ticket_pb2.Ticket, earlier: Iterable[ticket_pb2.Ticket]) -> dict[str, Any]:
    """Return everything that the page of a ticket shows. `earlier` are redeemed tickets, the newest first."""
    arguments = read_object(ticket.redacted_arguments)
    return {
        "ticket": summary_of(ticket),
        "etag": ticket.etag,
        "arguments": None if arguments is None else document_of(arguments),
        "preview": _preview_of(ticket),
        "comparison": _comparison(ticket, earlier),
        "risk": _risk_facts(ticket.risk),
        "policies": list(ticket.policies),
        "groups": _groups(ticket),
        "actors": _actors(ticket.requester),
        "tenant": ticket.requester.tenant,
        "consequences": ticket.consequences,
        "reason_required": ticket.reason_required,
        "steps": [_step(step) for step in ticket.steps],
        "votes": [(verdict.approver, verdict.approved, verdict.comment) for verdict in ticket.verdicts],
        "escalates": _moment(ticket, "escalate_time"),
        "approval_expires": _moment(ticket, "approval_expire_time"),
        "digests": _digests(ticket),
        "override": _override_of(ticket),
    }


def _preview_of(ticket: ticket_pb2.Ticket) -> Preview | None:
    content = read_object(ticket.preview)
    if content is None:
        return None
    changes = [change for change in _list(content, "changes") if isinstance(change, dict)]
    conditions = [condition for condition in _list(content, "preconditions") if isinstance(condition, dict)]
    impact = content.get("impact")
    count = content.get("change_count")
    return Preview(
        changes=tuple((str(change.get("operation", "")), str(change.get("resource", ""))) for change in changes),
        change_count=count if isinstance(count, int) else len(changes),
        preconditions=tuple((str(each.get("description", "")), each.get("holds") is True) for each in conditions),
        impact=document_of(impact) if isinstance(impact, dict) and impact else None,
        failed=str(content.get("failed", "")),
    )


def _override_of(ticket: ticket_pb2.Ticket) -> OverrideView | None:
    if not ticket.HasField("override"):
        return None
    override = ticket.override
    return OverrideView(
        actor=override.actor,
        reason=override.reason,
        review=_REVIEWS.get(override.review_state, ""),
        open=override.review_state == ticket_pb2.REVIEW_STATE_PENDING,
        reviewer=override.reviewer,
        finding=override.finding,
    )


def _list(content: dict[str, Any], name: str) -> list[Any]:
    value = content.get(name)
    return value if isinstance(value, list) else []


def _comparison(ticket: ticket_pb2.Ticket, earlier: Iterable[ticket_pb2.Ticket]) -> Comparison | None:
    arguments, tool = read_object(ticket.redacted_arguments), tool_of(ticket)[0]
    if arguments is None:
        return None
    for each in earlier:
        before = read_object(each.redacted_arguments)
        if each.name != ticket.name and tool_of(each)[0] == tool and before is not None:
            summary = summary_of(each)
            return Comparison(summary.ticket_id, _moment(each, "redeem_time"), changes_between(before, arguments))
    return None


def _risk_facts(risk: ticket_pb2.RiskFacts) -> list[tuple[str, Sequence[str]]]:
    scores = [f"{name}: {score}" for name, score in sorted(risk.scores.items())]
    facts: list[tuple[str, Sequence[str]]] = [
        ("Effect", [_MUTATIONS.get(risk.mutation_class, risk.mutation_class)] if risk.mutation_class else []),
        ("Impact scope", [f"{risk.impact_scope} of 10"] if risk.impact_scope else []),
        ("Declared effects", list(risk.declared_effects)),
        ("Resources", list(risk.resources)),
        ("Scores", scores),
        ("Sandbox", [risk.sandbox] if risk.sandbox else []),
        ("Tags", list(risk.tags)),
    ]
    return [(name, values) for name, values in facts if values]


def _groups(ticket: ticket_pb2.Ticket) -> list[tuple[str, bool]]:
    """Return the groups of the escalation chain, each with whether it is asked already."""
    return [(group, index <= ticket.escalation_index) for index, group in enumerate(ticket.escalation_chain)]


def _actors(requester: Caller) -> list[str]:
    """Return who asks: the person, and each through whom the authority passed."""
    chain = [requester.subject, *(actor.subject for actor in requester.delegation_chain), requester.agent]
    return list(dict.fromkeys(actor for actor in chain if actor))


def _step(step: ticket_pb2.TicketStep) -> Step:
    return Step(_STEPS.get(step.kind, step.kind), step.actor, step.detail, _moment(step, "time"))


def _digests(ticket: ticket_pb2.Ticket) -> list[tuple[str, str]]:
    rows = [
        ("Call", ticket.call_digest),
        ("Arguments", ticket.arguments_digest),
        ("Tool version", ticket.tool_digest),
        ("Policy set", ticket.policy_set_version),
        ("Invocation", ticket.invocation),
    ]
    return [(name, value) for name, value in rows if value]


def _moment(message: Any, name: str) -> Moment | None:
    return moment_of(getattr(message, name)) if message.HasField(name) else None


def moment_of(stamp: Timestamp, now: float | None = None) -> Moment:
    """Return a point in time as pages show it."""
    moment = datetime.fromtimestamp(stamp.seconds, UTC)
    distance = stamp.seconds - (time.time() if now is None else now)
    return Moment(f"{moment:%Y-%m-%dT%H:%M:%SZ}", f"{moment:%Y-%m-%d %H:%M} UTC", _relative(distance))


def _relative(seconds: float) -> str:
    distance = abs(seconds)
    if distance < 45:
        return "in less than a minute" if seconds > 0 else "just now"
    for unit, size, limit in (("min", 60, 90 * 60), ("h", 3600, 48 * 3600), ("days", 86400, float("inf"))):
        if distance < limit:
            amount = f"{max(1, round(distance / size))} {unit}"
            break
    return f"in {amount}" if seconds > 0 else f"{amount} ago"
