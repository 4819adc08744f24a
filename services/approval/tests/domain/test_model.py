"""Tickets over time, their etags and call digests."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from services.approval.domain.model import Requester
from services.approval.domain.states import TicketState, Verb
from services.approval.tests.drafts import START, draft, ticket

HOUR, TICK = timedelta(hours=1), timedelta(microseconds=1)


def test_a_pending_ticket_expires_exactly_at_its_expire_time() -> None:
    pending = ticket()
    assert pending.at(START + HOUR - TICK) is pending
    denied = pending.at(START + HOUR)
    assert (denied.state, denied.resolve_time) == (TicketState.AUTO_DENIED, START + HOUR)
    assert pending.at(START + 9 * HOUR) == denied


@pytest.mark.parametrize("state", [s for s in TicketState if s is not TicketState.PENDING])
def test_a_resolved_ticket_does_not_expire(state: TicketState) -> None:
    resolved = ticket(state=state, resolve_time=START)
    assert resolved.at(START + 9 * HOUR) is resolved


def test_every_change_of_a_ticket_changes_its_etag() -> None:
    pending = ticket()
    approved = pending.changed(Verb.APPROVE, START)
    seen = [
        pending,
        approved,
        approved.changed(Verb.REDEEM, START),
        pending.changed(Verb.DENY, START),
        pending.at(START + HOUR),
    ]
    assert len({t.etag for t in seen}) == len(seen)
    assert pending.etag == replace(pending).etag
    assert pending.etag != ticket().etag


def test_resolve_and_redeem_times_are_set_by_their_transitions() -> None:
    approved = ticket().changed(Verb.APPROVE, START)
    redeemed = approved.changed(Verb.REDEEM, START + HOUR)
    assert (redeemed.resolve_time, redeemed.redeem_time) == (START, START + HOUR)


def test_the_call_digest_covers_tool_arguments_invocation_and_requester() -> None:
    made = draft()
    others = [
        replace(made, tool_version="tools/acme.send_email/versions/1.2.4"),
        replace(made, tool_digest="sha256:cc"),
        replace(made, arguments_digest="sha256:cc"),
        replace(made, invocation="invocations/i-2"),
        replace(made, requester=Requester(subject="did:web:example.com:bob")),
    ]
    assert made.call_digest not in {other.call_digest for other in others}
    again = replace(made, decision="decisions/d-2", reason="Other words.", policy_set_version="v8")
    assert again.call_digest == made.call_digest
