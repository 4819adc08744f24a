"""The ports of the approval domain."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol

from libs.common.auth.identity import Identity
from libs.common.errors import MeshError, Reason
from services.approval.domain.model import Ticket, TicketLink
from services.approval.domain.person import Person
from services.approval.domain.states import TicketState

Change = Callable[[Ticket, datetime], Ticket]
"""Computes the ticket after a change, from the stored one and the time of the store. May raise MeshError."""


class Cursor(NamedTuple):
    """A position in the list of tickets, which is sorted by create time and id, newest first."""

    create_time: datetime
    ticket_id: str


class ChangeCursor(NamedTuple):
    """A position in the changes of tickets, which are sorted by update time and id, oldest first."""

    update_time: datetime
    ticket_id: str


class View(StrEnum):
    """Selects tickets by the reader's part in them."""

    ALL = "all"
    APPROVER = "approver"
    REQUESTER = "requester"


@dataclass(frozen=True, slots=True)
class TicketQuery:
    """Selects tickets. Without a reader, all of them."""

    reader: Person | None = None
    view: View = View.ALL
    state: TicketState | None = None

    def selects(self, ticket: Ticket) -> bool:
        """Return whether a ticket is selected, whatever its state."""
        reader = self.reader
        if reader is None:
            return True
        if self.view is View.APPROVER:
            return reader.may_decide(ticket)
        own = reader.subject == ticket.draft.requester.subject
        return reader.may_see(ticket) and (own or self.view is View.ALL)


class Tickets(Protocol):
    """The durable store of tickets. Every change is committed, with its audit records, when the method returns.

    All times are those of the store, so that the clocks of processes do not matter.
    """

    async def add(self, make: Callable[[datetime], Ticket]) -> tuple[Ticket, datetime]:
        """Store the ticket that `make` returns, or return the stored one of its request id, or the open one of its
        call. Concurrent requests store one ticket."""
        ...

    async def find(self, ticket_id: str) -> Ticket | None:
        """Return a ticket as of now."""
        ...

    async def page(self, query: TicketQuery, after: Cursor | None, limit: int) -> list[Ticket]:
        """Return tickets as of now, newest first, after a cursor."""
        ...

    async def change(self, ticket_id: str, change: Change) -> Ticket | None:
        """Lock a ticket, change it and return it; None if there is none. What `change` raises changes nothing."""
        ...

    async def record_refusal(self, ticket: Ticket, verb: str, error: MeshError) -> None:
        """Record that an attempt to decide or redeem a ticket was refused."""
        ...

    async def advance(self, limit: int) -> int:
        """Store what time changed in at most `limit` tickets, and return their number. Concurrent replicas do not wait
        for each other, and no step is stored twice."""
        ...


LinkCheck = Callable[[TicketLink, datetime], None]
"""Returns if a link may be used at a time of the store, else raises MeshError."""


class TicketLinks(Protocol):
    """The links of notifications."""

    async def use(self, ticket_id: str, token: str, person: Person, check: LinkCheck) -> bool:
        """Note that a person uses a link, unless `check` raises; return False if the ticket has no such link. One of
        concurrent uses comes first."""
        ...


class TicketChanges(Protocol):
    """The changes of all tickets."""

    def follow(self, check: Callable[[], None]) -> AsyncIterator[Sequence[Ticket]]:
        """Yield an empty sequence once changes are followed, and then changed tickets. `check` is called from time to
        time, and what it raises ends the iteration."""
        ...


class ApproverAuthority(Protocol):
    """Asks authz about the token of an approver."""

    async def confirm(self) -> None:
        """Return if the token of the current call is valid now. Raises TOKEN_REVOKED, or SERVICE_UNAVAILABLE."""
        ...


class Revocations(Protocol):
    """The revocations of tokens."""

    def find_revoked(self, ticket: Ticket) -> Reason | None:
        """Return TICKET_TOKEN_REVOKED if a token in the requester's chain was revoked since the ticket was created,
        TICKET_APPROVER_REVOKED if that of an approver was since its vote, else None. Raises SERVICE_UNAVAILABLE while
        that is not known."""
        ...


class WatcherCheck(Protocol):
    """Checks the tokens of callers whose streams stay open."""

    def check_of(self, identity: Identity | None) -> Callable[[], None]:
        """Return a function that raises TOKEN_EXPIRED or TOKEN_REVOKED once the token of a watcher is no longer valid.
        Peers of the mesh (None) need no token."""
        ...
