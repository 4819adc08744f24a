"""Who may withdraw a ticket."""

from __future__ import annotations

from dataclasses import replace

import pytest

from libs.common.errors import MeshError, Reason
from services.approval.domain.lifecycle.cancel_ticket import cancel
from services.approval.domain.person import Person
from services.approval.domain.states import TicketState
from services.approval.tests.drafts import START, ticket

ALICE = Person("did:web:example.com:alice", tenant="acme")


@pytest.mark.parametrize(
    "person",
    [
        replace(ALICE, subject="did:web:example.com:bob"),
        # A subject of the same name in another tenant, or in none, is another person.
        replace(ALICE, tenant="globex"),
        replace(ALICE, tenant=""),
        replace(ALICE, subject="did:web:example.com:bob", groups=frozenset({"leads"})),
    ],
)
def test_the_ticket_of_another_does_not_exist_for_a_person_who_cancels(person: Person) -> None:
    with pytest.raises(MeshError) as caught:
        cancel(ticket(), person, START)
    assert caught.value.reason is Reason.NOT_FOUND


@pytest.mark.parametrize("person", [ALICE, None])
def test_the_requester_and_peers_of_the_mesh_cancel_once(person: Person | None) -> None:
    canceled = cancel(ticket(), person, START)
    assert canceled.state is TicketState.CANCELED
    assert canceled.steps[-1].actor == ("" if person is None else person.subject)
    assert cancel(canceled, person, START) == canceled


@pytest.mark.parametrize("state", [TicketState.DENIED, TicketState.AUTO_DENIED, TicketState.REDEEMED])
def test_a_closed_ticket_is_not_canceled(state: TicketState) -> None:
    with pytest.raises(MeshError) as caught:
        cancel(ticket(state=state), ALICE, START)
    assert caught.value.reason is Reason.TICKET_CLOSED
