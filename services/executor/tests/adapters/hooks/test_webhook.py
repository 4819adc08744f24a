"""Webhooks against a real server: well-behaved ones, and every kind of failure."""

from __future__ import annotations

import asyncio
import hmac
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from hashlib import sha256
from typing import Any

import pytest

from libs.common.json.jsonio import parse
from libs.common.testing.clock import ManualClock
from services.executor.adapters.hooks.webhook import Endpoint, Webhook
from services.executor.domain.hooks.answers import HookFailedError
from services.executor.domain.scheduling.heavy_work import HeavyWork, Principal
from services.executor.tests.held_thread import offloaded

SHARE = HeavyWork().share_of(Principal("acme", "ada"))

SECRET = b"0123456789abcdef"
Reply = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Speaks HTTP by hand, so that it can speak it wrongly."""

    def __init__(self) -> None:
        self.reply: Reply = answer(b"{}")
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.connections = 0
        self.left = asyncio.Event()
        self.asked = asyncio.Event()
        self.port = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().strip().split("\r\n")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
                body = await reader.readexactly(int(headers["content-length"]))
                self.requests.append((first, headers, body))
                self.asked.set()
                await self.reply(writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.left.set()
        finally:
            writer.close()


def answer(body: bytes, status: str = "200 OK", media_type: str = "application/json", *more: str) -> Reply:
    async def reply(writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status}", f"content-type: {media_type}", f"content-length: {len(body)}", *more]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    return reply


def raw(text: bytes) -> Reply:
    async def reply(writer: asyncio.StreamWriter) -> None:
        writer.write(text)
        await writer.drain()
        writer.close()

    return reply


async def endless(writer: asyncio.StreamWriter) -> None:
    """Begins an answer that has no end."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"1000\r\n" + b" " * 0x1000 + b"\r\n")
        await writer.drain()


async def never(writer: asyncio.StreamWriter) -> None:
    """Takes the question and says nothing."""
    await asyncio.Event().wait()


@pytest.fixture
async def server(stack: AsyncExitStack) -> Server:
    server = Server()
    await listen(server, stack, None)
    return server


async def listen(
    server: Server, stack: AsyncExitStack, context: ssl.SSLContext | None, host: str = "127.0.0.1"
) -> None:
    listening = await asyncio.start_server(server, host, 0, ssl=context)
    stack.callback(listening.close)
    server.port = listening.sockets[0].getsockname()[1]


@pytest.fixture
async def webhook(server: Server) -> AsyncIterator[Webhook]:
    hook = Webhook(
        "guard",
        Endpoint(f"http://127.0.0.1:{server.port}/hook?x=1", SECRET),
        max_bytes=65_536,
        clock=ManualClock(),
    )
    yield hook
    await hook.close()


async def failure(webhook: Webhook) -> str:
    with pytest.raises(HookFailedError) as caught:
        await webhook.ask({"phase": "pre"}, SHARE)
    return caught.value.kind


async def test_an_event_is_posted_and_the_answer_comes_back(server: Server, webhook: Webhook) -> None:
    server.reply = answer(b'{"context":["hi"]}', "200 OK", "application/json; charset=utf-8")
    assert await webhook.ask({"phase": "pre", "input": {"a": 2**53 + 1}}, SHARE) == {"context": ["hi"]}
    [(first, headers, body)] = server.requests
    assert first == "POST /hook?x=1 HTTP/1.1"
    assert parse(body) == {"phase": "pre", "input": {"a": 2**53 + 1}}
    assert headers["content-type"] == "application/json"
    assert not {"authorization", "cookie"} & headers.keys()


async def test_a_large_event_is_encoded_beside_the_event_loop(server: Server, webhook: Webhook) -> None:
    heavy_work = HeavyWork(threads=1)
    await offloaded(heavy_work, webhook.ask({"result": "x" * 65_536}, heavy_work.share_of(SHARE.owner)))
    assert len(server.requests) == 1


async def test_a_request_is_signed_with_its_timestamp(server: Server, webhook: Webhook) -> None:
    await webhook.ask({"phase": "pre"}, SHARE)
    [(_, headers, body)] = server.requests
    stamp = headers["toolmesh-timestamp"]
    assert stamp == str(int(ManualClock().now().timestamp()))
    expected = hmac.new(SECRET, stamp.encode() + b"." + body, sha256).hexdigest()
    assert headers["toolmesh-signature"] == f"v1={expected}"


async def test_without_a_secret_nothing_is_signed(server: Server) -> None:
    plain = Webhook("guard", Endpoint(f"http://127.0.0.1:{server.port}/"), max_bytes=65_536)
    await plain.ask({}, SHARE)
    await plain.close()
    assert "toolmesh-signature" not in server.requests[0][1]


async def test_connections_are_reused(server: Server, webhook: Webhook) -> None:
    for _ in range(3):
        assert await webhook.ask({}, SHARE) == {}
    assert (len(server.requests), server.connections) == (3, 1)


async def test_status_204_is_no_answer_and_no_failure(server: Server, webhook: Webhook) -> None:
    server.reply = raw(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert await webhook.ask({}, SHARE) is None


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (answer(b"{}", "500 Internal Server Error"), "status"),
        (answer(b"{}", "404 Not Found"), "status"),
        (answer(b"{}", "201 Created"), "status"),
        (answer(b"{}", "302 Found", "application/json", "location: http://127.0.0.1:1/"), "redirected"),
        (answer(b"{}", "307 Temporary Redirect", "application/json", "location: /hook"), "redirected"),
        (answer(b"{}", "302 Found", "application/json", "location: https://xn--/"), "unreachable"),
        (answer(b"{}", "200 OK", "text/html"), "content_type"),
        (answer(b"{}", "200 OK", ""), "content_type"),
        (answer(b"{}", "200 OK", "application/json", "content-encoding: gzip"), "content_type"),
        (answer(b"not json"), "not_json"),
        (answer(b'{"a":1,"a":2}'), "not_json"),
        (answer(b"[" * 200 + b"]" * 200), "not_json"),
        (answer(b""), "not_json"),
        (answer(b'"' + b"x" * 65_536 + b'"'), "too_large"),
        (endless, "too_large"),
        (raw(b"GARBAGE\r\n\r\n"), "unreachable"),
        (raw(b""), "unreachable"),
        (raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"), "unreachable"),
    ],
    ids=[
        "500",
        "404",
        "201",
        "redirect",
        "redirect to itself",
        "redirect to no name",
        "html",
        "no media type",
        "compressed",
        "no json",
        "twice the same key",
        "deep",
        "empty",
        "huge",
        "endless",
        "garbage",
        "hangs up",
        "hangs up half-way",
    ],
)
async def test_every_invalid_response_has_its_own_reason_and_is_not_retried(
    server: Server, webhook: Webhook, reply: Reply, kind: str
) -> None:
    server.reply = reply
    assert await failure(webhook) == kind
    assert len(server.requests) == 1


async def test_an_answer_of_exactly_the_size_limit_is_read(server: Server, webhook: Webhook) -> None:
    server.reply = answer(b'"' + b"x" * 65_534 + b'"')
    assert len(await webhook.ask({}, SHARE)) == 65_534


async def test_a_server_that_is_not_there_is_unreachable(webhook: Webhook, server: Server, unused: int) -> None:
    assert await failure(Webhook("guard", Endpoint(f"http://127.0.0.1:{unused}/"), max_bytes=9)) == "unreachable"


@pytest.fixture
async def unused() -> int:
    """A port without a listener."""
    listening = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port: int = listening.sockets[0].getsockname()[1]
    listening.close()
    await listening.wait_closed()
    return port


async def test_a_failure_does_not_affect_the_next_request(server: Server, webhook: Webhook) -> None:
    server.reply = endless
    assert await failure(webhook) == "too_large"
    server.reply = answer(b'{"stop":"x"}')
    assert await webhook.ask({}, SHARE) == {"stop": "x"}


async def test_a_canceled_request_closes_its_connection(server: Server, webhook: Webhook) -> None:
    server.reply = never
    task = asyncio.ensure_future(webhook.ask({}, SHARE))
    await server.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    server.reply = answer(b"{}")
    assert await webhook.ask({}, SHARE) == {}
    assert server.connections == 2


async def test_proxies_of_the_environment_are_ignored(
    server: Server, webhook: Webhook, unused: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{unused}")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert await webhook.ask({}, SHARE) == {}


def _tls(pki: Any, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    identity = pki.of(name)
    context.load_cert_chain(identity.cert, identity.key)
    return context


async def test_a_tls_server_certificate_is_verified(pki: Any, stack: AsyncExitStack) -> None:
    honest, elsewhere = Server(), Server()
    await listen(honest, stack, _tls(pki, "approval"))
    await listen(elsewhere, stack, _tls(pki, "approval"), "127.0.0.2")
    trusting = ssl.create_default_context(cadata=pki.ca.read_text())
    good = Webhook("guard", Endpoint(f"https://localhost:{honest.port}/", trust=trusting), max_bytes=100)
    unknown = Webhook("guard", Endpoint(f"https://localhost:{honest.port}/"), max_bytes=100)
    other_name = Webhook("guard", Endpoint(f"https://127.0.0.2:{elsewhere.port}/", trust=trusting), max_bytes=100)
    assert await good.ask({}, SHARE) == {}
    assert await failure(unknown) == "unreachable"
    assert await failure(other_name) == "unreachable"
    for hook in (good, unknown, other_name):
        await hook.close()
    assert (len(honest.requests), len(elsewhere.requests)) == (1, 0)


def test_the_http_client_is_imported_on_first_use() -> None:
    program = (
        "import sys; from services.executor.adapters.hooks.hooks_file import DeclaredHooks, parse_hooks; "
        "parse_hooks([{'name': 'a', 'phase': 'pre', 'tools': ['*'], 'kind': 'webhook', 'url': 'https://a.example/'}]); "
        "sys.exit('httpx' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
