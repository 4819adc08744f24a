"""What a ticket is at a moment, and what tells one from another."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from services.approval.domain.model import Requester
from services.approval.domain.states import TicketState, Verb
from services.approval.tests.drafts import START, draft, ticket

HOUR, TICK = timedelta(hours=1), timedelta(microseconds=1)


def test_a_ticket_waits_until_its_time_is_over_and_not_a_moment_longer() -> None:
    pending = ticket()
    assert pending.at(START + HOUR - TICK) is pending
    denied = pending.at(START + HOUR)
    assert (denied.state, denied.resolve_time) == (TicketState.AUTO_DENIED, START + HOUR)
    assert pending.at(START + 9 * HOUR) == denied


@pytest.mark.parametrize("state", [s for s in TicketState if s is not TicketState.PENDING])
def test_time_does_not_change_what_is_resolved(state: TicketState) -> None:
    resolved = ticket(state=state, resolve_time=START)
    assert resolved.at(START + 9 * HOUR) is resolved


def test_every_change_has_an_etag_of_its_own() -> None:
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


def test_each_verb_notes_its_own_time() -> None:
    approved = ticket().changed(Verb.APPROVE, START)
    redeemed = approved.changed(Verb.REDEEM, START + HOUR)
    assert (redeemed.resolve_time, redeemed.redeem_time) == (START, START + HOUR)


def test_the_call_is_told_by_what_would_run_and_for_whom() -> None:
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
