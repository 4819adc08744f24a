"""Webhooks against a real receiver: a well-behaved one, and every kind of failure."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from libs.common.testing.clock import ManualClock
from libs.common.webhooks.destination import WebhookDestinations
from libs.common.webhooks.sender import WebhookMessage, WebhookSender
from libs.common.webhooks.signature import SIGNATURE, signed_headers
from tests.harness.servers.certificates import make_certificate

KEY = b"0123456789abcdef01234567"
Reply = Callable[[asyncio.StreamWriter], Awaitable[None]]


def raw(text: bytes) -> Reply:
    async def reply(writer: asyncio.StreamWriter) -> None:
        writer.write(text)
        await writer.drain()

    return reply


async def endless(writer: asyncio.StreamWriter) -> None:
    """Begins an answer that has no end."""
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while not writer.is_closing():
        writer.write(b"1000\r\n" + b" " * 0x1000 + b"\r\n")
        await writer.drain()


async def endless_headers(writer: asyncio.StreamWriter) -> None:
    """Begins headers that have no end."""
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while not writer.is_closing():
        writer.write(b"x: " + b"y" * 0x1000 + b"\r\n")
        await writer.drain()


async def silent(writer: asyncio.StreamWriter) -> None:
    """Takes the request and never answers."""
    await asyncio.Event().wait()


class Receiver:
    """Speaks HTTP by hand, so that it can speak it wrongly."""

    def __init__(self) -> None:
        self.reply: Reply = raw(b"HTTP/1.1 204 No Content\r\n\r\n")
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.connections = 0
        self.port = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode().strip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            body = await reader.readexactly(int(headers["content-length"]))
            self.requests.append((first, headers, body))
            await self.reply(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    @asynccontextmanager
    async def listening(self, context: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
        server = await asyncio.start_server(self, "127.0.0.1", 0, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()


async def resolve(host: str, group: Hashable) -> Sequence[str]:
    known = {
        "receiver.internal": ["127.0.0.1"],
        "private.example": ["10.0.0.1"],
        "mixed.example": ["93.184.215.14", "127.0.0.1"],
        "empty.example": [],
    }
    if host not in known:
        raise OSError
    return known[host]


def message(url: str) -> WebhookMessage:
    return WebhookMessage("msg_1", url, KEY, b'{"type":"invocation.ended"}', group="acme")


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


def sender(stack: AsyncExitStack, seconds: float = 30.0, trust: ssl.SSLContext | None = None) -> WebhookSender:
    made = WebhookSender(
        WebhookDestinations({"receiver.internal"}), resolve=resolve, clock=ManualClock(), seconds=seconds, trust=trust
    )
    stack.push_async_callback(made.close)
    return made


async def test_a_message_is_posted_signed_and_its_status_decides(stack: AsyncExitStack) -> None:
    receiver = await stack.enter_async_context(Receiver().listening())
    webhooks = sender(stack)
    sent = message(f"http://receiver.internal:{receiver.port}/hook?a=1")
    result = await webhooks.send(sent)
    assert (result.delivered, result.detail) == (True, "http_204")
    [(first, headers, body)] = receiver.requests
    assert first == "POST /hook?a=1 HTTP/1.1"
    assert headers["host"] == f"receiver.internal:{receiver.port}"
    assert body == sent.body
    expected = signed_headers(KEY, "msg_1", ManualClock().now(), body)
    assert {name: headers[name] for name in expected} == expected
    assert expected[SIGNATURE].startswith("v1,")
    location = f"location: http://127.0.0.1:{receiver.port}/elsewhere\r\n".encode()
    cases = [
        (raw(b"HTTP/1.1 500 Broken\r\ncontent-length: 0\r\n\r\n"), "http_500", True),
        (raw(b"HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n"), "http_410", False),
        (raw(b"HTTP/1.1 302 Found\r\n" + location + b"content-length: 0\r\n\r\n"), "http_302", True),
        (raw(b"HTTP/1.1 307 Again\r\n" + location + b"content-length: 0\r\n\r\n"), "http_307", True),
        (raw(b"SSH-2.0-OpenSSH\r\n\r\n"), "unreachable", True),
        (raw(b""), "unreachable", True),
        (endless_headers, "unreachable", True),
    ]
    for nth, (reply, detail, retry) in enumerate(cases, start=2):
        receiver.reply = reply
        result = await webhooks.send(sent)
        assert (result.delivered, result.detail, result.retry) == (False, detail, retry)
        # One request each: neither a redirect nor a broken answer causes a second.
        assert len(receiver.requests) == receiver.connections == nth
    receiver.reply = endless
    assert (await webhooks.send(sent)).delivered
    receiver.reply = silent
    assert (await sender(stack, seconds=0.2).send(sent)).detail == "timeout"


async def test_nothing_is_sent_to_where_it_must_not_go(stack: AsyncExitStack) -> None:
    receiver = await stack.enter_async_context(Receiver().listening())
    webhooks = sender(stack)
    for url, detail in [
        (f"https://mixed.example:{receiver.port}/", "address_not_public"),
        ("https://private.example/", "address_not_public"),
        (f"https://127.0.0.1:{receiver.port}/", "address_not_public"),
        (f"http://mixed.example:{receiver.port}/", "not_https"),
        ("https://empty.example/", "unresolved"),
        ("https://unknown.example/", "unresolved"),
    ]:
        result = await webhooks.send(message(url))
        assert (result.delivered, result.detail) == (False, detail)
    assert receiver.connections == 0


async def test_the_certificate_must_be_valid_for_the_host(stack: AsyncExitStack, tmp_path: Path) -> None:
    contexts = {}
    trust = ssl.create_default_context()
    for host in ("receiver.internal", "other.internal"):
        certificate, key = await asyncio.to_thread(make_certificate, tmp_path, host, f"DNS:{host}")
        contexts[host] = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        contexts[host].load_cert_chain(certificate, key)
        trust.load_verify_locations(certificate)
    webhooks = sender(stack, trust=trust)
    for host, context in contexts.items():
        receiver = await stack.enter_async_context(Receiver().listening(context))
        result = await webhooks.send(message(f"https://receiver.internal:{receiver.port}/"))
        assert result.delivered is (host == "receiver.internal")
        assert len(receiver.requests) == int(result.delivered)
