"""Tickets as pages show them: every field a person decides by, and none that deceives."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.approval.v1 import ticket_pb2

from services.gateway.console.approvals.ticket_view import STATES, moment_of, page_of, summary_of
from services.gateway.console.pages import visible_text


def ticket(name: str = "tickets/1", arguments: bytes = b'{"n": 1}', **fields: Any) -> ticket_pb2.Ticket:
    made = ticket_pb2.Ticket(
        name=name, tool_version="tools/samples.shred/versions/1.0.0", redacted_arguments=arguments, **fields
    )
    made.requester.subject = "did:web:a:alice"
    made.escalation_chain.extend(["approvers", "heads"])
    return made


def test_every_state_has_a_title() -> None:
    stored = set(ticket_pb2.TicketState.values()) - {ticket_pb2.TICKET_STATE_UNSPECIFIED}
    assert STATES.keys() == stored


def test_a_summary_names_the_tool_the_people_and_the_votes() -> None:
    made = ticket(state=ticket_pb2.TICKET_STATE_PENDING, quorum=2)
    made.risk.mutation_class = "write_irreversible"
    made.verdicts.add(approver="x", approved=True)
    summary = summary_of(made)
    assert (summary.ticket_id, summary.tool, summary.version) == ("1", "samples.shred", "1.0.0")
    assert (summary.votes, summary.quorum, summary.pending, summary.irreversible) == (1, 2, True, True)
    assert summary.expires is None


def test_a_page_compares_with_the_last_call_of_the_same_tool() -> None:
    other = ticket("tickets/2", b'{"n": 5}')
    other.tool_version = "tools/samples.other/versions/1.0.0"
    newest = ticket("tickets/3", b'{"n": 2}')
    newest.tool_version = "tools/samples.shred/versions/0.9.0"
    earlier = [ticket(), other, newest, ticket("tickets/4", b'{"n": 3}')]
    comparison = page_of(ticket(), earlier)["comparison"]
    assert comparison.ticket_id == "3"
    assert [(change.before, change.after) for change in comparison.changes] == [("2", "1")]
    assert page_of(ticket(), [ticket()])["comparison"] is None


@pytest.mark.parametrize(
    "preview",
    [b"", b"[]", b'{"changes": 1, "impact": 7, "preconditions": {}}', b'{"changes": [1], "change_count": "x"}'],
)
def test_a_preview_of_any_form_is_shown(preview: bytes) -> None:
    shown = page_of(ticket(preview=preview), [])["preview"]
    assert shown is None or (shown.changes, shown.impact) == ((), None)


def test_a_preview_shows_changes_conditions_and_impact() -> None:
    preview = (
        b'{"changes": [{"resource": "file:a", "operation": "delete"}], "change_count": 9, "impact": {"files": 9},'
        b' "preconditions": [{"description": "d", "holds": false}]}'
    )
    shown = page_of(ticket(preview=preview), [])["preview"]
    assert (shown.changes, shown.change_count) == ((("delete", "file:a"),), 9)
    assert shown.preconditions == (("d", False),)
    assert shown.impact.values[0].path == "files"


def test_everyone_in_the_chain_is_named_once() -> None:
    made = ticket(escalation_index=0)
    made.requester.delegation_chain.add(subject="did:web:a:alice")
    made.requester.delegation_chain.add(subject="did:web:a:planner")
    made.requester.agent = "did:web:a:bot"
    page = page_of(made, [])
    assert page["actors"] == ["did:web:a:alice", "did:web:a:planner", "did:web:a:bot"]
    assert page["groups"] == [("approvers", True), ("heads", False)]


def test_an_override_shows_its_review() -> None:
    made = ticket()
    assert page_of(made, [])["override"] is None
    made.override.actor, made.override.review_state = "did:web:a:oncall", ticket_pb2.REVIEW_STATE_PENDING
    assert page_of(made, [])["override"].open
    made.override.review_state = ticket_pb2.REVIEW_STATE_REJECTED
    closed = page_of(made, [])["override"]
    assert (closed.open, closed.review) == (False, "rejected")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (10, "in less than a minute"),
        (-10, "just now"),
        (300, "in 5 min"),
        (-7200, "2 h ago"),
        (86400 * 3, "in 3 days"),
    ],
)
def test_times_are_relative_to_now(seconds: int, text: str) -> None:
    assert moment_of(Timestamp(seconds=1_800_000_000 + seconds), 1_800_000_000.0).relative == text


@pytest.mark.parametrize("char", ["\u202e", "\u200b", "\u2066", "\x00", "\x1b", "\ufeff", "\u2028", "\U000e0041"])
def test_characters_that_deceive_are_spelled_out(char: str) -> None:
    assert visible_text(f"a{char}b\n\tä") == f"a‹U+{ord(char):04X}›b\n\tä"
