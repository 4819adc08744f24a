"""Notifications on a real database: batched, limited, retried, and once each across replicas."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.audit_client.act import ActEncoder
from libs.audit_client.outbox import ActRecorder
from libs.common.errors import MeshError, Reason
from libs.common.sql.engine import transaction
from libs.common.telemetry.log import Log
from libs.common.webhooks.sender import WebhookSender
from services.approval.adapters.notifications.channels_file import ChannelsFile, read_channels_file
from services.approval.adapters.notifications.links import PostgresLinks
from services.approval.adapters.notifications.queue import NotificationQueue
from services.approval.adapters.notifications.sender import NotificationSender
from services.approval.adapters.postgres_tickets import PostgresTickets
from services.approval.domain.lifecycle.cancel_ticket import cancel
from services.approval.domain.lifecycle.create_ticket import new_ticket
from services.approval.domain.model import Ticket
from services.approval.domain.notifications.open_ticket_link import open_ticket_link
from services.approval.domain.person import Person
from services.approval.domain.rules import ApprovalRules
from services.approval.tests.drafts import draft

KEY = b"k" * 32
SECRET = "whsec_" + b64encode(KEY).decode()
LOG = Log("approval", level="error", descriptor=2)


class Receiver:
    """An HTTP and SMTP server in one: keeps what it gets, and refuses as often as told."""

    def __init__(self) -> None:
        self.posts: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.mails: list[str] = []
        self.failures = 0
        self.port = self.smtp_port = 0

    async def http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        body = await reader.readexactly(int(headers["content-length"]))
        code = 200
        if self.failures:
            self.failures -= 1
            code = 503
        else:
            original = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
            self.posts.append(({k.lower(): v for k, v in original.items()}, json.loads(body)))
        writer.write(f"HTTP/1.1 {code} OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    async def smtp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        while line := (await reader.readline()).decode().strip():
            if line.upper() == "DATA":
                writer.write(b"354 go on\r\n")
                self.mails.append((await reader.readuntil(b"\r\n.\r\n")).decode())
            if line.upper() == "QUIT":
                writer.write(b"221 bye\r\n")
                break
            writer.write(b"250 fine\r\n")
        writer.close()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    servers = [
        await asyncio.start_server(made.http, "127.0.0.1", 0),
        await asyncio.start_server(made.smtp, "127.0.0.1", 0),
    ]
    made.port, made.smtp_port = (server.sockets[0].getsockname()[1] for server in servers)
    yield made
    for server in servers:
        server.close()


def a_file(receiver: Receiver, tmp_path: Path, **changes: Any) -> ChannelsFile:
    url = f"http://localhost:{receiver.port}/hook"
    mail = {"host": "127.0.0.1", "port": receiver.smtp_port, "tls": False, "sender": "mesh@example.com"}
    file = {
        "channels": [
            {"name": "hook", "kind": "webhook", "url": url, "secret": SECRET},
            {"name": "chat", "kind": "slack", "url": url, "groups": ["owners"]},
            {"name": "mail", "kind": "email", **mail, "addresses": {"leads": ["bob@example.com"]}},
        ],
        "internal_hosts": ["localhost"],
        "link": "https://mesh.example.com/console/approvals",
        **changes,
    }
    (tmp_path / "channels.json").write_text(json.dumps(file))
    return read_channels_file(tmp_path / "channels.json")


class Desk:
    """The store and two replicas of the sender."""

    def __init__(self, engine: AsyncEngine, file: ChannelsFile) -> None:
        self.engine, self.webhooks = engine, WebhookSender(file.destinations())
        channels = file.open(self.webhooks)
        self.tickets = PostgresTickets(engine, ActRecorder(ActEncoder("approval")), channels)
        self.senders = [
            NotificationSender(NotificationQueue(engine), PostgresLinks(engine), channels, file.hourly_limit, LOG)
            for _ in range(2)
        ]

    async def ask(self, number: int) -> list[Ticket]:
        def make(now: datetime) -> Ticket:
            made = draft(arguments_digest=f"sha256:{now.timestamp()}", redacted_arguments=b'{"secret":"hush"}')
            return new_ticket(made, ApprovalRules(), now)

        return [(await self.tickets.add(make))[0] for _ in range(number)]

    async def send(self) -> None:
        await asyncio.gather(*(sender.send_due() for sender in self.senders))

    async def run(self, statement: str) -> None:
        async with transaction(self.engine) as connection:
            await connection.execute(text(statement))


async def test_replicas_do_not_split_what_one_message_tells(
    engine: AsyncEngine, receiver: Receiver, tmp_path: Path
) -> None:
    desk = Desk(engine, a_file(receiver, tmp_path, hourly_limit=1000))
    for sent in range(1, 31):
        asked = await desk.ask(3)
        await desk.send()
        assert len(receiver.posts) == sent
        assert len(receiver.posts[-1][1]["notifications"]) == len(asked)


async def test_groups_are_notified_once_in_batches_and_again_with_the_same_id(
    engine: AsyncEngine, receiver: Receiver, tmp_path: Path
) -> None:
    desk = Desk(engine, a_file(receiver, tmp_path, hourly_limit=2))
    receiver.failures = 1
    asked = await desk.ask(3)
    await desk.send()
    assert (len(receiver.posts), len(receiver.mails)) == (0, 1)
    assert all(ticket.ticket_id in receiver.mails[0] for ticket in asked)
    assert "hush" not in receiver.mails[0]
    # The webhook failed: it comes again later, with the same ids, and no other channel repeats.
    await desk.run("update notifications set due_time = clock_timestamp() where due_time is not null")
    await desk.send()
    await desk.send()
    [(headers, body)] = receiver.posts
    assert sorted(each["id"] for each in body["notifications"]) == sorted(f"{t.name}/steps/1" for t in asked)
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode()
    content = json.dumps(body, separators=(",", ":"), sort_keys=True).encode()
    expected = hmac.new(KEY, signed + content, hashlib.sha256).digest()
    assert b64decode(headers["webhook-signature"].removeprefix("v1,")) == expected
    assert "hush" not in json.dumps(body)
    assert len(receiver.mails) == 1

    # The next group is notified by its own channels.
    await desk.run("update tickets set escalate_times = array[clock_timestamp()], next_time = clock_timestamp()")
    while await desk.tickets.advance(100):
        continue
    await desk.send()
    assert [("text" in body, body.get("group")) for _, body in receiver.posts[1:]] in (
        [(True, None), (False, "owners")],
        [(False, "owners"), (True, None)],
    )
    assert len(receiver.mails) == 1

    # A group is not notified more often than the limit allows; what waits is sent together, if it still waits.
    await desk.ask(1)
    await desk.send()
    assert len(receiver.posts) == 4
    more = await desk.ask(2)
    await desk.send()
    assert len(receiver.posts) == 4
    await desk.tickets.change(more[0].ticket_id, lambda ticket, now: cancel(ticket, None, now))
    await desk.run("update notifications set sent_time = sent_time - interval '1 hour'")
    await desk.run("update notifications set due_time = clock_timestamp() where due_time is not null")
    await desk.send()
    assert [each["ticket"] for each in receiver.posts[-1][1]["notifications"]] == [more[1].name]
    await desk.webhooks.close()


class Confirming:
    """Confirms every token."""

    async def confirm(self) -> None:
        return


async def test_a_link_leads_each_person_of_its_group_to_its_ticket_once(
    engine: AsyncEngine, receiver: Receiver, tmp_path: Path
) -> None:
    desk, links = Desk(engine, a_file(receiver, tmp_path)), PostgresLinks(engine)
    ticket, other = await desk.ask(2)
    await desk.send()
    [(_, body)] = receiver.posts
    tokens = {each["ticket"]: parse_qs(urlsplit(each["link"]).query)["link"][0] for each in body["notifications"]}
    token = tokens[ticket.name]

    async def attempt(name: str, who: str, token: str = token, groups: str = "leads") -> Reason | None:
        person = Person(who, "acme", frozenset({groups}), frozenset({"approvals:decide"}))
        try:
            opened = await open_ticket_link(name, token, person, links, desk.tickets, Confirming())
        except MeshError as error:
            return error.reason
        assert opened.name == name
        return None

    bob, carol = "did:web:example.com:bob", "did:web:example.com:carol"
    assert await attempt(ticket.name, bob, groups="guests") is Reason.APPROVER_NOT_ELIGIBLE
    assert await attempt(ticket.name, ticket.draft.requester.subject) is Reason.SELF_APPROVAL
    assert await attempt(other.name, bob) is Reason.NOT_FOUND
    assert await attempt(ticket.name, bob, "0" * 64) is Reason.NOT_FOUND
    at_once = await asyncio.gather(*(attempt(ticket.name, bob) for _ in range(4)))
    assert Counter(at_once) == {None: 1, Reason.TICKET_LINK_USED: 3}
    assert await attempt(ticket.name, carol) is None
    await desk.run("update ticket_links set expire_time = clock_timestamp()")
    assert await attempt(other.name, bob, tokens[other.name]) is Reason.TICKET_LINK_EXPIRED
    # The store has no token that could be used.
    async with transaction(engine) as connection:
        stored = str((await connection.execute(text("select * from ticket_links"))).all())
        forms = [json.loads(form) for form in await connection.scalars(text("select form from act_outbox"))]
    assert token not in stored
    refused = Counter(form["act"]["reason"] for form in forms if form["event_class"] == "ticket_refused")
    reasons = ("APPROVER_NOT_ELIGIBLE", "SELF_APPROVAL", "TICKET_LINK_EXPIRED")
    assert refused == {**dict.fromkeys(reasons, 1), "TICKET_LINK_USED": 3}
    await desk.webhooks.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"channels": [{"name": "a", "kind": "webhook", "url": "http://10.0.0.1/", "secret": SECRET}]},
        {"channels": [{"name": "a", "kind": "webhook", "url": "https://example.com/", "secret": "short"}]},
        {"channels": [{"name": "a", "kind": "pigeon"}]},
        {"channels": [{"name": "a", "kind": "email", "host": "h", "sender": "s"}]},
        {"channels": [{"name": "", "kind": "slack", "url": "https://example.com/"}]},
        {"hourly_limit": 0},
        {"unknown": 1},
    ],
)
def test_a_wrong_file_is_refused_without_its_secrets(changes: dict[str, Any], tmp_path: Path) -> None:
    receiver = Receiver()
    with pytest.raises(ValueError) as caught:
        a_file(receiver, tmp_path, **changes)
    assert SECRET not in str(caught.value)
