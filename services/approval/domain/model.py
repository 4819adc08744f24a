"""A ticket: one exact call that waits for a person, and everything that person needs to know about it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from libs.common.json.canonical import digest, digest_bytes
from services.approval.domain.states import TicketState, Verb, after

DEFAULT_LIFETIME = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Requester:
    """Who asked, as the executor knew them at the time."""

    subject: str
    agent: str = ""
    tenant: str = ""
    tier: str = ""
    token_id: str = ""
    delegation_chain: tuple[tuple[str, str], ...] = ()
    """Subject and token id of everyone the authority passed through, the originator first."""
    scopes: tuple[str, ...] = ()
    session_id: str = ""
    peer: str = ""
    expire_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """One person's decision."""

    approver: str
    approved: bool
    comment: str
    decide_time: datetime


@dataclass(frozen=True, slots=True)
class TicketDraft:
    """What the executor asks a person about."""

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
    lifetime: timedelta

    @property
    def call_digest(self) -> str:
        """Identifies the call in question. A repeated request may come with a newer decision about the same call; with
        another tool, other arguments, another invocation or another requester it is about another call."""
        who = self.requester
        return digest(
            {
                "tool_version": self.tool_version,
                "tool_digest": self.tool_digest,
                "arguments_digest": self.arguments_digest,
                "invocation": self.invocation,
                "requester": [who.subject, who.agent, who.tenant],
            }
        )


@dataclass(frozen=True, slots=True)
class Ticket:
    """A ticket as it stands. Its revision counts its changes."""

    ticket_id: str
    draft: TicketDraft
    state: TicketState
    revision: int
    create_time: datetime
    expire_time: datetime
    preview: bytes = b""
    escalation_index: int = 0
    verdicts: tuple[Verdict, ...] = ()
    resolve_time: datetime | None = None
    redeem_time: datetime | None = None

    @property
    def name(self) -> str:
        """The resource name."""
        return f"tickets/{self.ticket_id}"

    @property
    def etag(self) -> str:
        """Differs after every change, and only then."""
        return digest_bytes(f"{self.ticket_id}:{self.revision}:{self.state}".encode())[len("sha256:") :][:32]

    def at(self, now: datetime) -> Ticket:
        """Return the ticket as it is at a moment. Once its time is over, a ticket that nobody decided is denied, whether or
        not anybody has written that down yet."""
        if self.state is not TicketState.PENDING or now < self.expire_time:
            return self
        return self.changed(Verb.EXPIRE, self.expire_time)

    def changed(self, verb: Verb, when: datetime) -> Ticket:
        """Return the ticket after a verb. Raises FAILED_PRECONDITION where the state forbids it."""
        moved = replace(self, state=after(self.state, verb), revision=self.revision + 1)
        return replace(moved, redeem_time=when) if verb is Verb.REDEEM else replace(moved, resolve_time=when)
