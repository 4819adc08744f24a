"""The model of tickets: a ticket is one exact call that waits for approval, with everything an approver needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from libs.common.json.canonical import digest, digest_bytes
from services.approval.domain.states import TicketState, Verb, next_state

DEFAULT_LIFETIME = timedelta(hours=1)


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


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision of one approver."""

    approver: str
    approved: bool
    comment: str
    decide_time: datetime


@dataclass(frozen=True, slots=True)
class TicketDraft:
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
    lifetime: timedelta

    @property
    def call_digest(self) -> str:
        """The identity of the call: tool, arguments, invocation and requester. A repeated request may carry a newer
        policy decision for the same call."""
        requester = self.requester
        return digest(
            {
                "tool_version": self.tool_version,
                "tool_digest": self.tool_digest,
                "arguments_digest": self.arguments_digest,
                "invocation": self.invocation,
                "requester": [requester.subject, requester.agent, requester.tenant],
            }
        )


@dataclass(frozen=True, slots=True)
class Ticket:
    """A ticket. Its revision counts its changes."""

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
        """A value that changes with every change of the ticket, and only then."""
        return digest_bytes(f"{self.ticket_id}:{self.revision}:{self.state}".encode())[len("sha256:") :][:32]

    def is_visible_to(self, tenant: str) -> bool:
        """Return whether a reader of this tenant may see it; a reader without a tenant (empty) sees all tickets."""
        return not tenant or tenant == self.draft.requester.tenant

    def at(self, now: datetime) -> Ticket:
        """Return the ticket as of a time. An overdue pending ticket is denied, also before that is stored."""
        if self.state is not TicketState.PENDING or now < self.expire_time:
            return self
        return self.changed(Verb.EXPIRE, self.expire_time)

    def changed(self, verb: Verb, time: datetime) -> Ticket:
        """Return the ticket after a transition. Raises FAILED_PRECONDITION if its state does not allow it."""
        changed = replace(self, state=next_state(self.state, verb), revision=self.revision + 1)
        return replace(changed, redeem_time=time) if verb is Verb.REDEEM else replace(changed, resolve_time=time)
