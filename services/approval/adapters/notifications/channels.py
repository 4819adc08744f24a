"""The channels: signed webhooks, Slack-compatible messages and e-mail."""

from __future__ import annotations

import asyncio
import smtplib
from collections.abc import Mapping, Sequence
from email.message import EmailMessage
from typing import Any

from libs.common.json.canonical import canonical
from libs.common.webhooks.sender import WebhookMessage, WebhookSender
from services.approval.domain.notifications.notification import Message, Notification

_MAX_SHOWN = 20
_SMTP_SECONDS = 10.0


class WebhookChannel:
    """Posts a signed JSON document, in the form of Standard Webhooks."""

    def __init__(
        self, name: str, url: str, key: bytes, groups: Sequence[str], link: str, sender: WebhookSender
    ) -> None:
        self.name, self._url, self._key = name, url, key
        self._groups, self._link, self._sender = frozenset(groups), link, sender

    def serves(self, group: str) -> bool:
        return not self._groups or group in self._groups

    async def send(self, message: Message) -> str:
        return await _post(self._sender, self._url, self._key, message, self._body(message))

    def _body(self, message: Message) -> dict[str, Any]:
        return {
            "type": "approval.asked",
            "group": message.group,
            "notifications": [_form(notification, self._link) for notification in message.notifications],
        }


class SlackChannel(WebhookChannel):
    """Posts a text to an incoming webhook of Slack, or of a service that takes the same JSON."""

    def _body(self, message: Message) -> dict[str, Any]:
        return {"text": "\n".join(_lines(message, self._link))}


class EmailChannel:
    """Sends an e-mail to the addresses of a group, over SMTP."""

    def __init__(
        self, name: str, host: str, port: int, sender: str, addresses: Mapping[str, Sequence[str]], link: str, tls: bool
    ) -> None:
        self.name, self._host, self._port, self._sender = name, host, port, sender
        self._addresses, self._link, self._tls = addresses, link, tls

    def serves(self, group: str) -> bool:
        return bool(self._addresses.get(group))

    async def send(self, message: Message) -> str:
        try:
            await asyncio.to_thread(self._deliver, self._email(message))
        except (OSError, smtplib.SMTPException) as error:
            return type(error).__name__
        return ""

    def _email(self, message: Message) -> EmailMessage:
        count = len(message.notifications)
        email = EmailMessage()
        email["From"], email["To"] = self._sender, ", ".join(self._addresses[message.group])
        email["Subject"] = "A call needs your approval" if count == 1 else f"{count} calls need your approval"
        # The same message has the same id, so that a mailbox recognises a repeated delivery.
        email["Message-ID"] = f"<{message.message_id}@toolmesh>"
        email.set_content("\n".join(_lines(message, self._link)) + "\n")
        return email

    def _deliver(self, email: EmailMessage) -> None:
        with smtplib.SMTP(self._host, self._port, timeout=_SMTP_SECONDS) as server:
            if self._tls:
                server.starttls()
            server.send_message(email)


async def _post(sender: WebhookSender, url: str, key: bytes, message: Message, body: dict[str, Any]) -> str:
    posted = WebhookMessage(message_id=message.message_id, url=url, key=key, body=canonical(body), group=message.group)
    result = await sender.send(posted)
    return "" if result.delivered else result.detail


def _form(notification: Notification, link: str) -> dict[str, Any]:
    """Return what a receiver needs to find the ticket. Arguments are shown by the mesh only, after a login."""
    ticket, draft = notification.ticket, notification.ticket.draft
    return {
        "id": notification.notification_id,
        "ticket": ticket.name,
        "tool_version": draft.tool_version,
        "requester": draft.requester.agent or draft.requester.subject,
        "reason": draft.reason,
        "expire_time": ticket.expire_time.isoformat(),
        "escalation": ticket.draft.escalation_chain.index(notification.group),
        "link": f"{link}/{ticket.ticket_id}?link={notification.link_token}" if link else "",
    }


def _lines(message: Message, link: str) -> list[str]:
    shown = message.notifications[:_MAX_SHOWN]
    lines = [f"{len(message.notifications)} call(s) need the approval of {message.group}:"]
    for notification in shown:
        form = _form(notification, link)
        where = form["link"] or f"toolmesh approvals show {form['ticket']}"
        lines.append(f"- {form['tool_version']} for {form['requester']}, denied at {form['expire_time']}: {where}")
    if len(message.notifications) > len(shown):
        lines.append(f"- and {len(message.notifications) - len(shown)} more")
    return lines
