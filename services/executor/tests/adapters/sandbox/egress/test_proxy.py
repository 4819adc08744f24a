"""The egress proxy."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import stat
import tempfile
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from libs.common.egress import resolver
from libs.common.errors import Reason
from services.executor.adapters.sandbox.egress.destination import HOST_NOT_ALLOWED, NAME_INVALID, PORT_NOT_ALLOWED
from services.executor.adapters.sandbox.egress.listener import (
    ADDRESS_NOT_ALLOWED,
    TRAFFIC_LIMIT,
    EgressLimits,
    EgressListener,
    EgressRefusal,
)
from services.executor.adapters.sandbox.egress.proxy import EgressProxy, refusal_error
from services.executor.tests.origins import Names, Origin, refusal_in, status_of, through
from services.executor.tests.waiting import until

LOCAL = [ip_network("127.0.0.1/32")]
Open = Callable[..., Any]


@pytest.fixture
async def origin(stack: AsyncExitStack) -> Origin:
    return await stack.enter_async_context(Origin().listening())


@pytest.fixture
def opened(stack: AsyncExitStack) -> Open:
    """Opens listeners: `await opened(names, hosts, ports, limits=...)`."""

    async def open_gate(names: Names, hosts: list[str], ports: list[int], **options: Any) -> EgressListener:
        proxy = EgressProxy(LOCAL, resolve=names, **options)
        stack.push_async_callback(proxy.close)
        return await proxy.open(hosts, ports)

    return open_gate


async def test_an_allowed_host_answers_a_plain_request(opened: Open, origin: Origin) -> None:
    listener = await opened(Names(["127.0.0.1"]), ["api.example.com"], [origin.port])
    url = f"http://api.example.com:{origin.port}/path"
    answer = await through(listener.path, f"GET {url} HTTP/1.1\r\nAuthorization: Bearer s\r\n\r\n".encode())
    assert answer.endswith(b"hello")
    assert origin.received[0].startswith(b"GET /path HTTP/1.1\r\nHost: api.example.com:")
    assert listener.refusals == ()
    assert refusal_error(listener.refusals) is None


async def test_socket_path_stays_short_with_a_deep_tempdir(
    opened: Open, origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / "deep" / ("x" * 100)
    deep.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    listener = await opened(Names(["127.0.0.1"]), ["api.example.com"], [origin.port])
    request = f"GET http://api.example.com:{origin.port}/ HTTP/1.1\r\n\r\n"
    assert (await through(listener.path, request.encode())).endswith(b"hello")


async def test_an_allowed_host_answers_through_a_tunnel(opened: Open, origin: Origin) -> None:
    listener = await opened(Names(["127.0.0.1"]), ["*.example.com"], [origin.port])
    reader, writer = await asyncio.open_unix_connection(listener.path)
    writer.write(f"CONNECT API.Example.com.:{origin.port} HTTP/1.1\r\n\r\n".encode())
    assert status_of(await reader.readuntil(b"\r\n\r\n")) == 200
    # Tunnel content is not inspected.
    writer.write(b"\x16\x03\x01 anything\x00\r\n\r\n")
    assert (await reader.read()).endswith(b"hello")
    writer.write_eof()
    writer.close()
    assert origin.received[0].startswith(b"\x16\x03\x01 anything\x00")


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("http://evil.example/", HOST_NOT_ALLOWED),
        ("http://api.example.com.evil.example/", HOST_NOT_ALLOWED),
        ("http://api.example.com:22/", PORT_NOT_ALLOWED),
        ("http://127.0.0.1/", HOST_NOT_ALLOWED),
        ("http://[::1]/", HOST_NOT_ALLOWED),
        ("http://169.254.169.254/latest/meta-data", HOST_NOT_ALLOWED),
        ("http://2130706433/", NAME_INVALID),
        ("http://0177.0.0.1/", NAME_INVALID),
        ("http://0x7f.0.0.1/", NAME_INVALID),
        ("http://127.1/", NAME_INVALID),
        ("http://api.example%2ecom/", NAME_INVALID),
    ],
)
async def test_other_destinations_are_refused_and_recorded(opened: Open, target: str, reason: str) -> None:
    names = Names(["127.0.0.1"])
    listener = await opened(names, ["api.example.com"], [80, 443])
    answer = await through(listener.path, f"GET {target} HTTP/1.1\r\n\r\n".encode())
    assert (status_of(answer), refusal_in(answer)) == (403, reason)
    assert [refusal.reason for refusal in listener.refusals] == [reason]
    # A lookup of a refused name would leak data by DNS.
    assert names.asked == []


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.2"],
        ["10.0.0.1"],
        ["169.254.169.254"],
        ["::1"],
        ["::ffff:10.0.0.1"],
        ["64:ff9b::a9fe:a9fe"],
        ["127.0.0.1", "10.0.0.1"],
    ],
)
async def test_an_allowed_name_with_a_private_address_is_refused(
    opened: Open, origin: Origin, addresses: list[str]
) -> None:
    listener = await opened(Names(addresses), ["api.example.com"], [origin.port])
    answer = await through(listener.path, f"CONNECT api.example.com:{origin.port} HTTP/1.1\r\n\r\n".encode())
    assert (status_of(answer), refusal_in(answer)) == (403, ADDRESS_NOT_ALLOWED)
    assert listener.refusals == (EgressRefusal("api.example.com", origin.port, ADDRESS_NOT_ALLOWED),)
    assert origin.connections == 0


async def test_names_are_resolved_once_against_dns_rebinding(opened: Open, stack: AsyncExitStack) -> None:
    checked = await stack.enter_async_context(Origin().listening("127.0.0.1"))
    other = await stack.enter_async_context(Origin().listening("127.0.0.2", checked.port))
    names = Names(["127.0.0.1"], ["127.0.0.2"])
    listener = await opened(names, ["rebinds.example"], [checked.port])
    request = f"GET http://rebinds.example:{checked.port}/ HTTP/1.1\r\n\r\n".encode()
    assert status_of(await through(listener.path, request)) == 200
    assert (names.asked, checked.connections, other.connections) == (["rebinds.example"], 1, 0)
    assert refusal_in(await through(listener.path, request)) == ADDRESS_NOT_ALLOWED
    assert other.connections == 0


async def test_an_unresolvable_name_is_not_recorded_as_refusal(opened: Open) -> None:
    listener = await opened(Names(), ["api.example.com"], [80])
    assert status_of(await through(listener.path, b"GET http://api.example.com/ HTTP/1.1\r\n\r\n")) == 502
    assert listener.refusals == ()


async def test_the_first_reachable_address_is_used(opened: Open, origin: Origin) -> None:
    proxy = EgressProxy([ip_network("127.0.0.0/8")], resolve=Names(["127.0.0.9", "127.0.0.1"]))
    listener = await proxy.open(["api.example.com"], [origin.port])
    try:
        request = f"GET http://api.example.com:{origin.port}/ HTTP/1.1\r\n\r\n".encode()
        assert status_of(await through(listener.path, request)) == 200
    finally:
        await proxy.close()


async def test_malformed_requests_are_not_forwarded(opened: Open, origin: Origin) -> None:
    listener = await opened(Names(["127.0.0.1"]), ["api.example.com"], [origin.port])
    lines = (
        f"POST http://api.example.com:{origin.port}/ HTTP/1.1\r\n"
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    assert status_of(await through(listener.path, lines.encode() + b"0\r\n\r\nGET /admin HTTP/1.1\r\n\r\n")) == 400
    assert origin.connections == 0


async def test_bytes_after_the_body_are_not_forwarded(opened: Open, origin: Origin) -> None:
    listener = await opened(Names(["127.0.0.1"]), ["api.example.com"], [origin.port])
    head = f"POST http://api.example.com:{origin.port}/ HTTP/1.1\r\nContent-Length: 4\r\n\r\n".encode()
    assert status_of(await through(listener.path, head + b"bodyGET /second HTTP/1.1\r\n\r\n")) == 200
    await listener.close()
    assert b"second" not in b"".join(origin.received)


async def test_bytes_after_the_last_chunk_are_not_forwarded(opened: Open, origin: Origin) -> None:
    listener = await opened(Names(["127.0.0.1"]), ["api.example.com"], [origin.port])
    head = f"POST http://api.example.com:{origin.port}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    assert status_of(await through(listener.path, head + b"4\r\nbody\r\n0\r\n\r\nGET /second HTTP/1.1\r\n\r\n")) == 200
    await listener.close()
    assert b"second" not in b"".join(origin.received)


async def test_a_head_that_is_too_large_is_refused(opened: Open) -> None:
    listener = await opened(Names(["127.0.0.1"]), ["api.example.com"], [80], limits=EgressLimits(head_bytes=1000))
    request = b"GET http://api.example.com/ HTTP/1.1\r\n" + b"X: " + b"a" * 100_000 + b"\r\n\r\n"
    assert status_of(await through(listener.path, request)) == 431


async def test_a_slow_head_times_out(opened: Open) -> None:
    listener = await opened(Names(["127.0.0.1"]), ["api.example.com"], [80], limits=EgressLimits(head_seconds=0.1))
    assert await through(listener.path, b"GET http://api.example.com/ HTTP/1.1\r\nX: ") == b""


async def test_an_idle_tunnel_is_closed(opened: Open, origin: Origin) -> None:
    listener = await opened(
        Names(["127.0.0.1"]), ["api.example.com"], [origin.port], limits=EgressLimits(idle_seconds=0.1)
    )
    answer = await through(listener.path, f"CONNECT api.example.com:{origin.port} HTTP/1.1\r\n\r\n".encode())
    assert status_of(answer) == 200


@pytest.mark.parametrize("method", ["CONNECT", "POST"])
async def test_one_way_traffic_keeps_a_tunnel_open(opened: Open, stack: AsyncExitStack, method: str) -> None:
    """A download, and an upload with one answer at the end: each is silent in one direction."""
    idle = 3.0

    async def slowly(writer: asyncio.StreamWriter) -> None:
        clock = asyncio.get_running_loop().time
        ends = clock() + 1.3 * idle
        while clock() < ends:
            writer.write(b"1\r\nx\r\n")
            await asyncio.sleep(idle / 100)
        writer.write(b"0\r\n\r\n")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if method == "CONNECT":
            await slowly(writer)
        else:
            await reader.readuntil(b"\r\n0\r\n\r\n")
        writer.write(b"the end")
        writer.close()

    server = await stack.enter_async_context(await asyncio.start_server(serve, "127.0.0.1", 0))
    port = server.sockets[0].getsockname()[1]
    listener = await opened(Names(["127.0.0.1"]), ["api.example.com"], [port], limits=EgressLimits(idle_seconds=idle))
    reader, writer = await asyncio.open_unix_connection(listener.path)
    if method == "CONNECT":
        writer.write(f"CONNECT api.example.com:{port} HTTP/1.1\r\n\r\n".encode())
    else:
        url = f"http://api.example.com:{port}/"
        writer.write(f"POST {url} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        await slowly(writer)
    assert (await reader.read()).endswith(b"the end")
    writer.close()


async def test_concurrent_connections_are_limited(opened: Open, stack: AsyncExitStack) -> None:
    listener = await opened(Names(["127.0.0.1"]), ["api.example.com"], [80], limits=EgressLimits(connections=2))
    held = [await asyncio.open_unix_connection(listener.path) for _ in range(2)]
    for _, writer in held:
        writer.write(b"GET")
    reader, writer = await asyncio.open_unix_connection(listener.path)
    assert status_of(await reader.read()) == 503
    for each in (writer, *(writer for _, writer in held)):
        each.close()


async def test_exceeding_the_traffic_quota_closes_the_connection(opened: Open, origin: Origin) -> None:
    limits = EgressLimits(traffic_bytes=1000)
    listener = await opened(Names(["127.0.0.1"]), ["api.example.com"], [origin.port], limits=limits)
    head = f"POST http://api.example.com:{origin.port}/ HTTP/1.1\r\nContent-Length: 5000\r\n\r\n".encode()
    await through(listener.path, head + b"x" * 5000)
    await listener.close()
    assert [refusal.reason for refusal in listener.refusals] == [TRAFFIC_LIMIT]
    error = refusal_error(listener.refusals)
    assert error is not None
    assert (error.reason, error.metadata["limit"]) == (Reason.RESOURCE_LIMIT_EXCEEDED, "traffic")


async def test_an_open_connection_uses_the_quota_of_the_current_call(opened: Open, origin: Origin) -> None:
    listener = await opened(
        Names(["127.0.0.1"]), ["api.example.com"], [origin.port], limits=EgressLimits(traffic_bytes=1000)
    )
    reader, writer = await asyncio.open_unix_connection(listener.path)
    writer.write(f"CONNECT api.example.com:{origin.port} HTTP/1.1\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    for call in range(1, 4):
        writer.write(b"x" * 600)
        await until(lambda sent=call * 600: len(b"".join(origin.received)) >= sent)  # type: ignore[misc]
        assert listener.take_refusals() == ()
    writer.close()


async def test_a_refusal_names_the_host_and_belongs_to_one_call(opened: Open) -> None:
    listener = await opened(Names(["127.0.0.1"]), [], [443])
    await through(listener.path, b"CONNECT evil.example:443 HTTP/1.1\r\n\r\n")
    error = refusal_error(listener.take_refusals())
    assert error is not None
    assert (error.reason, error.metadata["host"]) == (Reason.NETWORK_POLICY_VIOLATION, "evil.example")
    assert listener.refusals == ()


async def test_only_the_first_refusals_are_recorded(opened: Open) -> None:
    listener = await opened(Names(["127.0.0.1"]), [], [443])
    for number in range(40):
        await through(listener.path, f"CONNECT h{number}.example:443 HTTP/1.1\r\n\r\n".encode())
    assert len(listener.refusals) == 32
    assert listener.refusals[0].host == "h0.example"


async def test_each_listener_has_its_own_rules(origin: Origin) -> None:
    proxy = EgressProxy(LOCAL, resolve=Names(["127.0.0.1"]))
    try:
        one = await proxy.open(["one.example"], [origin.port])
        two = await proxy.open(["two.example"], [origin.port])
        request = f"GET http://one.example:{origin.port}/ HTTP/1.1\r\n\r\n".encode()
        assert status_of(await through(one.path, request)) == 200
        assert status_of(await through(two.path, request)) == 403
        assert (one.refusals, len(two.refusals)) == ((), 1)
    finally:
        await proxy.close()


async def test_a_closed_listener_leaves_nothing_behind(origin: Origin) -> None:
    proxy = EgressProxy(LOCAL, resolve=Names(["127.0.0.1"]))
    listener, other = await proxy.open(["a.example"], [origin.port]), await proxy.open(["b.example"], [origin.port])
    folder = Path(listener.path).parent
    # The socket is usable by every user who knows its random name.
    assert [os.stat(path).st_mode & 0o777 for path in (folder, listener.path)] == [0o711, 0o666]  # noqa: PTH116
    reader, writer = await asyncio.open_unix_connection(listener.path)
    writer.write(f"CONNECT a.example:{origin.port} HTTP/1.1\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    # close does not wait for open connections.
    await asyncio.wait_for(listener.close(), 20)
    assert await reader.read() == b""
    writer.close()
    assert [os.path.exists(each.path) for each in (listener, other)] == [False, True]  # noqa: ASYNC240, PTH110
    await proxy.close()
    assert not folder.exists()


async def test_a_server_that_does_not_read_leaks_no_socket(stack: AsyncExitStack) -> None:
    """Otherwise a tool and its server could make the executor hold an open file per connection."""
    idle = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    port = idle.getsockname()[1]
    proxy = EgressProxy(LOCAL, resolve=Names(["127.0.0.1"]))
    stack.push_async_callback(proxy.close)
    listener = await proxy.open(["api.example.com"], [port])
    before = sockets()
    client = stack.enter_context(socket.socket(socket.AF_UNIX))
    client.connect(listener.path)
    client.send(f"CONNECT api.example.com:{port} HTTP/1.1\r\n\r\n".encode())
    taken = stack.enter_context((await asyncio.to_thread(idle.accept))[0])
    client.setblocking(False)
    # Fill all buffers between the two.
    while await writable(client):
        client.send(b"x" * 65536)
    await listener.close()
    client.close()
    await until(lambda: len(sockets() - before - {os.fstat(taken.fileno()).st_ino}) == 0)


async def writable(client: socket.socket) -> bool:
    """Return whether more can be sent, after waiting for the buffers to drain."""
    return bool((await asyncio.to_thread(select.select, [], [client], [], 0.5))[1])


def sockets() -> set[int]:
    """Return the open sockets of this process."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            status = entry.stat()
            if stat.S_ISSOCK(status.st_mode):
                found.add(status.st_ino)
    return found


async def test_slow_lookups_do_not_block_other_listeners(
    monkeypatch: pytest.MonkeyPatch, stack: AsyncExitStack, origin: Origin
) -> None:
    """The owner of a domain decides how long lookups take, and a wildcard covers any number of names."""
    released = threading.Event()
    stack.callback(released.set)

    def lookup(host: str) -> list[Any]:
        if host.endswith(".slow.example"):
            released.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 0))]

    monkeypatch.setattr(resolver, "_lookup", lookup)
    proxy = EgressProxy(LOCAL)
    stack.push_async_callback(proxy.close)
    slow = await proxy.open(["*.slow.example"], [80])
    other = await proxy.open(["api.example.com"], [origin.port])
    for nth in range(20):
        _, writer = await asyncio.open_unix_connection(slow.path)
        writer.write(f"CONNECT n{nth}.slow.example:80 HTTP/1.1\r\n\r\n".encode())
        stack.callback(writer.close)
    await until(lambda: len(slow._connections) == 20)
    request = f"GET http://api.example.com:{origin.port}/ HTTP/1.1\r\n\r\n".encode()
    assert status_of(await through(other.path, request)) == 200
