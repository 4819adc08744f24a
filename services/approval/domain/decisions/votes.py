"""Votes and overrides: pure functions from a ticket to the ticket afterwards."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from services.approval.domain.errors import no_open_review, not_eligible, reason_required, self_approval, ticket_closed
from services.approval.domain.model import Override, ReviewState, StepKind, Ticket, Verdict
from services.approval.domain.person import OVERRIDE_SCOPE, Person, check_eligible, check_etag
from services.approval.domain.rules import ApprovalRules
from services.approval.domain.states import TicketState, Verb


def approve(ticket: Ticket, person: Person, reason: str, etag: str, rules: ApprovalRules, now: datetime) -> Ticket:
    """Return the ticket after an approving vote; approved if it completes the quorum. A repeated vote changes
    nothing."""
    ticket = ticket.at(now)
    check_eligible(person, ticket)
    if ticket.is_open and _has_approved(ticket, person):
        return ticket
    if ticket.state is not TicketState.PENDING:
        raise ticket_closed(ticket.state, Verb.APPROVE)
    check_etag(ticket, etag)
    if ticket.draft.reason_required and not reason.strip():
        raise reason_required()
    voted = _voted(ticket, person, reason, now)
    if sum(verdict.approved for verdict in voted.verdicts) < ticket.draft.quorum:
        return voted
    approved = voted.moved(Verb.APPROVE, StepKind.APPROVED, now)
    return replace(approved, approval_expire_time=now + rules.approval_lifetime)


def deny(ticket: Ticket, person: Person, reason: str, etag: str, now: datetime) -> Ticket:
    """Return the denied ticket. One denial ends it; a repeated denial by the same person changes nothing."""
    ticket = ticket.at(now)
    check_eligible(person, ticket)
    if ticket.state is TicketState.DENIED and ticket.steps[-1].actor == person.subject:
        return ticket
    if not ticket.is_open:
        raise ticket_closed(ticket.state, Verb.DENY)
    check_etag(ticket, etag)
    denied = ticket.moved(Verb.DENY, StepKind.VOTE_DENIED, now, actor=person.subject, detail=reason)
    verdict = Verdict(person.subject, False, reason, now, person.token_id)
    return replace(denied, verdicts=(*ticket.verdicts, verdict), approval_expire_time=None)


def override(ticket: Ticket, person: Person, reason: str, etag: str, rules: ApprovalRules, now: datetime) -> Ticket:
    """Return the ticket approved by one person in place of its quorum, with a review to be closed."""
    ticket = ticket.at(now)
    check_eligible(person, ticket, rules.break_glass_groups)
    if OVERRIDE_SCOPE not in person.scopes:
        raise not_eligible("scope")
    if ticket.override is not None and ticket.override.actor == person.subject and ticket.is_open:
        return ticket
    check_etag(ticket, etag)
    made = ticket.moved(Verb.APPROVE, StepKind.OVERRIDDEN, now, actor=person.subject, detail=reason)
    expires = now + rules.approval_lifetime
    by = Override(person.subject, reason, now, token_id=person.token_id)
    return replace(made, override=by, approval_expire_time=expires)


def review(ticket: Ticket, person: Person, verdict: ReviewState, finding: str, now: datetime) -> Ticket:
    """Return the ticket with the review of its override closed, by another person than the one who overrode it."""
    ticket = ticket.at(now)
    check_eligible(person, ticket, frozenset(ticket.draft.escalation_chain))
    made = ticket.override
    if made is None:
        raise no_open_review()
    if person.subject == made.actor:
        raise self_approval()
    if made.review_state is not ReviewState.PENDING:
        if (made.reviewer, made.review_state) == (person.subject, verdict):
            return ticket
        raise no_open_review()
    closed = replace(made, review_state=verdict, reviewer=person.subject, finding=finding, review_time=now)
    noted = ticket.noted(StepKind.REVIEWED, now, actor=person.subject, detail=f"{verdict}: {finding}")
    return replace(noted, override=closed)


def _has_approved(ticket: Ticket, person: Person) -> bool:
    return any(verdict.approver == person.subject and verdict.approved for verdict in ticket.verdicts)


def _voted(ticket: Ticket, person: Person, reason: str, now: datetime) -> Ticket:
    noted = ticket.noted(StepKind.VOTE_APPROVED, now, actor=person.subject, detail=reason)
    verdict = Verdict(person.subject, True, reason, now, person.token_id)
    return replace(noted, verdicts=(*ticket.verdicts, verdict))
