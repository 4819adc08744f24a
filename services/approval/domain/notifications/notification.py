"""Notifications: which group is asked about which tickets, and the channels that tell it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from libs.common.json.canonical import digest_bytes
from services.approval.domain.model import Ticket


@dataclass(frozen=True, slots=True)
class Notification:
    """One group that one ticket asks. A repeated delivery has the same id."""

    ticket: Ticket
    step: int
    group: str
    link_token: str = ""
    """Leads an approver to the ticket, after a login."""

    @property
    def notification_id(self) -> str:
        """The id: the same whenever and by whichever replica it is sent."""
        return f"{self.ticket.name}/steps/{self.step}"


@dataclass(frozen=True, slots=True)
class Message:
    """Notifications of one group that are sent together, so that many tickets are one message."""

    group: str
    notifications: Sequence[Notification]

    @property
    def message_id(self) -> str:
        """The id: the same for the same notifications."""
        ids = ",".join(sorted(notification.notification_id for notification in self.notifications))
        return f"msg_{digest_bytes(ids.encode()).removeprefix('sha256:')[:32]}"


class Channel(Protocol):
    """One way to notify a group. Knows the address of each group."""

    @property
    def name(self) -> str:
        """The name of the channel in the configuration."""
        ...

    def serves(self, group: str) -> bool:
        """Return whether the channel tells this group."""
        ...

    async def send(self, message: Message) -> str:
        """Send a message; return an empty text, or why it was not delivered."""
        ...
