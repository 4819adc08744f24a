"""Tickets as the executor asks for them and uses them."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from msgspec import Struct

from services.executor.domain.model import Caller, Decision
from services.executor.domain.tool import Tool


class Ticket(Struct, frozen=True):
    """A ticket, as far as the executor needs it."""

    name: str
    state: str
    """`pending`, `approved`, `redeemed`, `denied`, `auto_denied`, `canceled` or `expired`."""
    expires: datetime
    """When it ends in denial."""
    previewed: bool = False
    """True if its approver saw what the call would do."""


class TicketDraft(Struct, frozen=True):
    """The request for approval of one call."""

    invocation_id: str
    tool: Tool
    caller: Caller
    decision: Decision
    arguments_digest: str
    redacted_arguments: bytes
    """The arguments as a JSON object without sensitive values."""
    preview: bytes = b""
    """What the call would do, as a JSON object; empty if that is not known."""
    resources: tuple[str, ...] = ()
    risk: tuple[tuple[str, int], ...] = ()
    sandbox: str = ""


class Redemption(Struct, frozen=True):
    """The use of an approval by one call."""

    ticket: str
    redemption_id: str
    """The idempotency key of the call by name, or its invocation. The same use may be repeated."""
    invocation_id: str
    tool: Tool
    caller: Caller
    arguments_digest: str
    policy_set_version: str


class Approvals(Protocol):
    """The client of the approval service."""

    async def create(self, draft: TicketDraft, *, within: float) -> Ticket:
        """Return the open ticket of the call, made by now. Raises SERVICE_UNAVAILABLE when there is none."""
        ...

    async def redeem(self, use: Redemption, *, validate_only: bool, within: float) -> Ticket:
        """Use the approval, or only check that it could be used. Raises why it does not hold for this call."""
        ...

    async def get(self, name: str, *, within: float) -> Ticket:
        """Return a ticket as it is now. Raises NOT_FOUND."""
        ...

    async def cancel(self, name: str, *, within: float) -> None:
        """Withdraw an open ticket. Raises TICKET_CLOSED for one that has ended."""
        ...
