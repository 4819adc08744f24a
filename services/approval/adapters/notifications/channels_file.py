"""Reads the notification channels of a deployment from a JSON file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from libs.common.webhooks.destination import ForbiddenUrlError, WebhookDestinations
from libs.common.webhooks.sender import WebhookSender
from libs.common.webhooks.signature import signing_key
from services.approval.adapters.notifications.channels import EmailChannel, SlackChannel, WebhookChannel
from services.approval.domain.notifications.notification import Channel


class ChannelEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One channel of the file."""

    name: str
    kind: Literal["webhook", "slack", "email"]
    url: str = ""
    secret: str = ""
    """`whsec_` and a key in base64, for webhooks."""
    groups: list[str] = []
    """The groups that a webhook or Slack channel tells; empty for all."""
    host: str = ""
    port: int = 587
    tls: bool = True
    sender: str = ""
    addresses: dict[str, list[str]] = {}
    """The addresses of each group, for e-mail."""


class ChannelsFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The channels, and what holds for all of them."""

    channels: list[ChannelEntry] = []
    hourly_limit: int = 20
    """The most messages that one channel sends to one group within an hour."""
    link: str = ""
    """The address of the page of tickets; the id of the ticket follows."""
    internal_hosts: list[str] = []
    """Hosts of the deployment itself, which may have private addresses and plain HTTP."""

    def __repr__(self) -> str:
        return f"ChannelsFile({[entry.name for entry in self.channels]})"

    def open(self, sender: WebhookSender) -> list[Channel]:
        """Return the channels."""
        return [self._channel(entry, sender) for entry in self.channels]

    def destinations(self) -> WebhookDestinations:
        """Return where webhooks may be sent."""
        return WebhookDestinations(self.internal_hosts)

    def _channel(self, entry: ChannelEntry, sender: WebhookSender) -> Channel:
        if entry.kind == "email":
            return EmailChannel(entry.name, entry.host, entry.port, entry.sender, entry.addresses, self.link, entry.tls)
        if entry.kind == "slack":
            # Slack ignores signatures; the URL itself is the secret.
            return SlackChannel(entry.name, entry.url, b"\0" * 24, entry.groups, self.link, sender)
        return WebhookChannel(entry.name, entry.url, signing_key(entry.secret), entry.groups, self.link, sender)


def read_channels_file(path: Path | str | None) -> ChannelsFile:
    """Return the channels in a file; none without a file. Raises ValueError with what is wrong, never with a secret."""
    if not path:
        return ChannelsFile()
    try:
        file = msgspec.json.decode(Path(path).read_bytes(), type=ChannelsFile)
    except OSError:
        raise ValueError("is not a file that can be read") from None
    except msgspec.MsgspecError as error:
        raise ValueError(f"is not a file of notification channels: {error}") from None
    if len({entry.name for entry in file.channels}) != len(file.channels) or not all(e.name for e in file.channels):
        raise ValueError("each channel needs a name of its own")
    if not 1 <= file.hourly_limit <= 10_000:
        raise ValueError("hourly_limit must be 1 to 10000")
    destinations = file.destinations()
    for entry in file.channels:
        _check(entry, destinations)
    return file


def _check(entry: ChannelEntry, destinations: WebhookDestinations) -> None:
    if entry.kind == "email":
        if not (entry.host and entry.sender and entry.addresses) or not 1 <= entry.port <= 65_535:
            raise ValueError(f"the channel {entry.name} needs host, port, sender and addresses")
        if any("\n" in text or "\r" in text for all_of in entry.addresses.values() for text in (*all_of, entry.sender)):
            raise ValueError(f"an address of the channel {entry.name} has more than one line")
        return
    try:
        destinations.parse(entry.url)
    except ForbiddenUrlError as error:
        raise ValueError(f"the url of the channel {entry.name} is not allowed: {error.rule}") from None
    if entry.kind == "webhook":
        signing_key(entry.secret)
