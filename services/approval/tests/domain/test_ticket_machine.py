"""The state machine of tickets, by random sequences of verbs and time."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from libs.common.errors import MeshError, Reason
from services.approval.domain.decisions.votes import approve, deny, override, review
from services.approval.domain.lifecycle.cancel_ticket import cancel
from services.approval.domain.lifecycle.create_ticket import new_ticket
from services.approval.domain.lifecycle.redemption import redeem
from services.approval.domain.model import Redemption, ReviewState, StepKind, Ticket
from services.approval.domain.person import OVERRIDE_SCOPE, Person
from services.approval.domain.rules import ApprovalRules
from services.approval.domain.states import OPEN, TicketState
from services.approval.tests.drafts import START, draft

RULES = ApprovalRules(break_glass_groups=frozenset({"oncall"}))
ALICE, AGENT = "did:web:example.com:alice", "did:web:example.com:agent"
PEOPLE = [
    *(Person(f"did:web:example.com:{name}", groups=frozenset({"leads"})) for name in ("bob", "carol", "dave")),
    Person("did:web:example.com:erin", groups=frozenset({"owners"})),
    Person("did:web:example.com:frank", groups=frozenset({"oncall"}), scopes=frozenset({OVERRIDE_SCOPE})),
    Person("did:web:example.com:mallory", groups=frozenset({"guests"})),
    Person("did:web:example.com:agented", groups=frozenset({"leads"}), delegated=True),
    Person(ALICE, groups=frozenset({"leads", "owners", "oncall"}), scopes=frozenset({OVERRIDE_SCOPE})),
    Person(AGENT, groups=frozenset({"leads"})),
]
REVOKED = [None, None, Reason.TICKET_TOKEN_REVOKED, Reason.TICKET_APPROVER_REVOKED]
people, uses = st.sampled_from(PEOPLE), st.sampled_from(["key-1", "key-2"])


class TicketMachine(RuleBasedStateMachine):
    """Drives one ticket, and checks what must hold in every state."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.ticket: Ticket = new_ticket(draft(), RULES, START)
        self.redeemed_by: set[str] = set()

    @initialize(quorum=st.integers(1, 3), reason_required=st.booleans())
    def create(self, quorum: int, reason_required: bool) -> None:
        made = draft(quorum=quorum, reason_required=reason_required, lifetime=timedelta(hours=4))
        self.ticket = new_ticket(made, RULES, START)

    def _apply(self, changed: Any) -> None:
        before = self.ticket
        with suppress(MeshError):
            self.ticket = changed(before)
        after = self.ticket
        assert after.steps[: len(before.steps)] == before.steps
        assert after.escalation_index >= before.escalation_index
        assert (after.revision == before.revision) == (after == before)
        if before.state not in OPEN:
            assert after.state is before.state

    @rule(person=people, reason=st.sampled_from(["", "checked"]))
    def vote(self, person: Person, reason: str) -> None:
        self._apply(lambda ticket: approve(ticket, person, reason, "", RULES, self.now))

    @rule(person=people)
    def deny(self, person: Person) -> None:
        self._apply(lambda ticket: deny(ticket, person, "no", "", self.now))

    @rule(person=people)
    def override(self, person: Person) -> None:
        self._apply(lambda ticket: override(ticket, person, "fire", "", RULES, self.now))

    @rule(person=people, verdict=st.sampled_from([ReviewState.UPHELD, ReviewState.REJECTED]))
    def review(self, person: Person, verdict: ReviewState) -> None:
        self._apply(lambda ticket: review(ticket, person, verdict, "seen", self.now))

    @rule()
    def cancel(self) -> None:
        self._apply(lambda ticket: cancel(ticket, None, self.now))

    @rule(
        use=uses,
        revoked=st.sampled_from(REVOKED),
        change=st.sampled_from(["", "arguments", "policy", "tool", "caller"]),
    )
    def redeem(self, use: str, revoked: Reason | None, change: str) -> None:
        made = self.ticket.draft
        exact = Redemption(
            made.requester,
            made.tool_version,
            made.tool_digest,
            made.arguments_digest,
            made.policy_set_version,
            use,
            "i",
        )
        other = {
            "": exact,
            "arguments": replace(exact, arguments_digest="sha256:other"),
            "policy": replace(exact, policy_set_version="v8"),
            "tool": replace(exact, tool_digest="sha256:other"),
            "caller": replace(exact, requester=replace(made.requester, subject="did:web:example.com:eve")),
        }[change]

        def attempt(ticket: Ticket) -> Ticket:
            redeemed = redeem(ticket, other, self.now, revoked=revoked)
            assert not revoked
            assert not change
            self.redeemed_by.add(use)
            return redeemed

        self._apply(attempt)

    @rule(seconds=st.integers(1, 7200))
    def wait(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        before = self.ticket.at(self.now - timedelta(seconds=seconds))
        self._apply(lambda ticket: ticket.at(self.now))
        if before.state is TicketState.PENDING:
            # Time never approves.
            assert self.ticket.state in (TicketState.PENDING, TicketState.AUTO_DENIED)

    @rule(seconds=st.integers(1, 7200))
    def clock_jumps_back(self, seconds: int) -> None:
        earlier = self.now - timedelta(seconds=seconds)
        assert self.ticket.at(self.now).at(earlier) == self.ticket.at(self.now)

    @invariant()
    def approvals_have_a_quorum_of_others(self) -> None:
        ticket = self.ticket
        approvers = {verdict.approver for verdict in ticket.verdicts if verdict.approved}
        assert not approvers & ticket.draft.requester.participants
        if ticket.override is not None:
            assert ticket.override.actor not in ticket.draft.requester.participants
            assert ticket.override.reviewer != ticket.override.actor
        elif any(step.kind is StepKind.APPROVED for step in ticket.steps):
            assert len(approvers) >= ticket.draft.quorum
        else:
            assert ticket.state not in (TicketState.APPROVED, TicketState.REDEEMED, TicketState.EXPIRED)

    @invariant()
    def an_approval_is_used_once(self) -> None:
        assert len(self.redeemed_by) <= 1
        assert sum(step.kind is StepKind.REDEEMED for step in self.ticket.steps) <= 1
        numbers = [step.number for step in self.ticket.steps]
        assert numbers == list(range(1, len(numbers) + 1))
        escalated = [step.detail for step in self.ticket.steps if step.kind is StepKind.ESCALATED]
        assert len(escalated) == len(set(escalated))


TicketMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestTicketMachine = TicketMachine.TestCase
