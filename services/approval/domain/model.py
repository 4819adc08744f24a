"""The model of tickets: a ticket is one exact call that waits for approval, with everything an approver needs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from libs.common.json.canonical import digest, digest_bytes
from services.approval.domain.states import OPEN, TicketState, Verb, next_state

_PREFIX = "tickets/"


@dataclass(frozen=True, slots=True)
class Requester:
    """The requester of the call, as reported by the executor."""

    subject: str
    agent: str = ""
    tenant: str = ""
    tier: str = ""
    token_id: str = ""
    delegation_chain: tuple[tuple[str, str], ...] = ()
    """Subject and token id of each delegation, the originator first."""
    scopes: tuple[str, ...] = ()
    session_id: str = ""
    peer: str = ""
    expire_time: datetime | None = None

    @property
    def identity(self) -> tuple[str, str, str, tuple[str, ...]]:
        """Who calls, by which chain of actors. A renewed token is the same caller."""
        return self.tenant, self.subject, self.agent, tuple(subject for subject, _ in self.delegation_chain)

    @property
    def participants(self) -> frozenset[str]:
        """Everyone with a part in the call. None of them may decide about it."""
        return frozenset({self.subject, self.agent, *(subject for subject, _ in self.delegation_chain)} - {""})


@dataclass(frozen=True, slots=True)
class RiskFacts:
    """The risk of a call, as the tool's manifest and hooks report it."""

    mutation_class: str = ""
    impact_scope: int = 0
    tags: tuple[str, ...] = ()
    declared_effects: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    sandbox: str = ""
    scores: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The vote of one approver."""

    approver: str
    approved: bool
    comment: str
    decide_time: datetime
    token_id: str = ""
    """The token that the vote was cast with."""


class StepKind(StrEnum):
    """What can happen to a ticket."""

    CREATED = "created"
    VOTE_APPROVED = "vote_approved"
    VOTE_DENIED = "vote_denied"
    ESCALATED = "escalated"
    APPROVED = "approved"
    AUTO_DENIED = "auto_denied"
    CANCELED = "canceled"
    REDEEMED = "redeemed"
    EXPIRED = "expired"
    OVERRIDDEN = "overridden"
    REVIEWED = "reviewed"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened to a ticket."""

    number: int
    kind: StepKind
    actor: str
    detail: str
    time: datetime


class ReviewState(StrEnum):
    """The states of the review of an override."""

    PENDING = "pending"
    UPHELD = "upheld"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Override:
    """An approval by one person instead of the quorum, and its review."""

    actor: str
    reason: str
    override_time: datetime
    review_state: ReviewState = ReviewState.PENDING
    reviewer: str = ""
    finding: str = ""
    review_time: datetime | None = None
    token_id: str = ""
    """The token that the override was made with."""


class CallBinding:
    """What ties an approval to one exact call."""

    __slots__ = ()
    requester: Requester
    tool_version: str
    tool_digest: str
    arguments_digest: str
    policy_set_version: str

    @property
    def call_digest(self) -> str:
        """The identity of the call: caller, actor chain, tool version, arguments and policy set."""
        tenant, subject, agent, chain = self.requester.identity
        return digest(
            {
                "caller": [tenant, subject, agent],
                "actor_chain": list(chain),
                "tool_version": self.tool_version,
                "tool_digest": self.tool_digest,
                "arguments_digest": self.arguments_digest,
                "policy_set_version": self.policy_set_version,
            }
        )


@dataclass(frozen=True, slots=True)
class TicketDraft(CallBinding):
    """The request for approval of one call."""

    request_id: str
    tool_version: str
    tool_digest: str
    arguments_digest: str
    redacted_arguments: bytes
    requester: Requester
    invocation: str
    decision: str
    policy_set_version: str
    reason: str
    escalation_chain: tuple[str, ...]
    quorum: int
    lifetime: timedelta | None = None
    """None for what the rules of the deployment say."""
    preview: bytes = b""
    risk: RiskFacts = RiskFacts()
    policies: tuple[str, ...] = ()
    reason_required: bool = False


@dataclass(frozen=True, slots=True)
class Redemption(CallBinding):
    """The use of an approval by a call."""

    requester: Requester
    tool_version: str
    tool_digest: str
    arguments_digest: str
    policy_set_version: str
    redemption_id: str
    """The idempotency key of the call, or its invocation. The same use may be repeated."""
    invocation: str


@dataclass(frozen=True, slots=True)
class Ticket:
    """A ticket. Its revision counts its changes."""

    ticket_id: str
    draft: TicketDraft
    state: TicketState
    revision: int
    create_time: datetime
    expire_time: datetime
    escalate_times: tuple[datetime, ...] = ()
    """When each group after the first is asked."""
    escalation_index: int = 0
    verdicts: tuple[Verdict, ...] = ()
    steps: tuple[Step, ...] = ()
    resolve_time: datetime | None = None
    approval_expire_time: datetime | None = None
    redeem_time: datetime | None = None
    redemption_id: str = ""
    redeem_invocation: str = ""
    override: Override | None = field(default=None)

    @property
    def name(self) -> str:
        """The resource name."""
        return f"{_PREFIX}{self.ticket_id}"

    @property
    def etag(self) -> str:
        """A value that changes with every change of the ticket, and only then."""
        return digest_bytes(f"{self.ticket_id}:{self.revision}:{self.state}".encode())[len("sha256:") :][:32]

    @property
    def is_open(self) -> bool:
        """Whether it waits for a decision or for its use."""
        return self.state in OPEN

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that are asked by now."""
        return self.draft.escalation_chain[: self.escalation_index + 1]

    @property
    def approvals(self) -> tuple[tuple[str, str, datetime], ...]:
        """Who approved it: subject, token id and time of each."""
        votes = tuple((vote.approver, vote.token_id, vote.decide_time) for vote in self.verdicts if vote.approved)
        made = self.override
        return votes if made is None else (*votes, (made.actor, made.token_id, made.override_time))

    @property
    def next_time(self) -> datetime | None:
        """When time changes it next; None if it never will."""
        if self.state is TicketState.APPROVED:
            return self.approval_expire_time
        if self.state is not TicketState.PENDING:
            return None
        following = self.escalate_times[self.escalation_index :]
        return min(following[0], self.expire_time) if following else self.expire_time

    def at(self, now: datetime) -> Ticket:
        """Return the ticket as of a time: escalated, denied or expired as far as due, also before that is stored."""
        ticket = self
        while (due := ticket.next_time) is not None and due <= now:
            ticket = ticket._advance(due)
        return ticket

    def _advance(self, due: datetime) -> Ticket:
        if self.state is TicketState.APPROVED:
            return self.moved(Verb.LAPSE, StepKind.EXPIRED, due)
        if due >= self.expire_time:
            return self.moved(Verb.TIME_OUT, StepKind.AUTO_DENIED, due)
        escalated = replace(self, escalation_index=self.escalation_index + 1)
        return escalated.noted(StepKind.ESCALATED, due, detail=escalated.groups[-1])

    def noted(self, kind: StepKind, time: datetime, *, actor: str = "", detail: str = "") -> Ticket:
        """Return the ticket with one more step."""
        step = Step(len(self.steps) + 1, kind, actor, detail, time)
        return replace(self, steps=(*self.steps, step), revision=self.revision + 1)

    def moved(self, verb: Verb, kind: StepKind, time: datetime, *, actor: str = "", detail: str = "") -> Ticket:
        """Return the ticket after a transition. Raises TICKET_CLOSED if its state does not allow it."""
        state = next_state(self.state, verb)
        moved = replace(self.noted(kind, time, actor=actor, detail=detail), state=state)
        if verb is Verb.REDEEM:
            return replace(moved, redeem_time=time)
        return replace(moved, resolve_time=time)


def ticket_id_of(name: str) -> str:
    """Return the id of a ticket by its resource name."""
    return name.removeprefix(_PREFIX)


@dataclass(frozen=True, slots=True)
class TicketLink:
    """A link that was sent. Its token is not stored, only the digest of it."""

    group: str
    """The group that was notified."""
    expire_time: datetime
    used_by: tuple[str, ...] = ()
    """The people who opened it."""
