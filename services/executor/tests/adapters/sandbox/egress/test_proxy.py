"""The only way out of a sandbox."""

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

from libs.common.errors import Reason
from services.executor.adapters.sandbox.egress import dialer as dialing
from services.executor.adapters.sandbox.egress.destination import HOST_NOT_ALLOWED, NAME_INVALID, PORT_NOT_ALLOWED
from services.executor.adapters.sandbox.egress.dialer import SystemResolver
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
    """Opens ways out: `await opened(names, hosts, ports, bounds=...)`."""

    async def open_gate(names: Names, hosts: list[str], ports: list[int], **options: Any) -> EgressListener:
        proxy = EgressProxy(LOCAL, resolve=names, **options)
        stack.push_async_callback(proxy.close)
        return await proxy.open(hosts, ports)

    return open_gate


async def test_an_allowed_host_answers_a_plain_request(opened: Open, origin: Origin) -> None:
    gate = await opened(Names(["127.0.0.1"]), ["api.example.com"], [origin.port])
    url = f"http://api.example.com:{origin.port}/path"
    answer = await through(gate.path, f"GET {url} HTTP/1.1\r\nAuthorization: Bearer s\r\n\r\n".encode())
    assert answer.endswith(b"hello")
    assert origin.received[0].startswith(b"GET /path HTTP/1.1\r\nHost: api.example.com:")
    assert gate.violations == ()
    assert refusal_error(gate.violations) is None


async def test_temporary_files_may_lie_deeper_than_a_socket_can(
    opened: Open, origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / "deep" / ("x" * 100)
    deep.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    gate = await opened(Names(["127.0.0.1"]), ["api.example.com"], [origin.port])
    request = f"GET http://api.example.com:{origin.port}/ HTTP/1.1\r\n\r\n"
    assert (await through(gate.path, request.encode())).endswith(b"hello")


async def test_an_allowed_host_answers_through_a_tunnel(opened: Open, origin: Origin) -> None:
    gate = await opened(Names(["127.0.0.1"]), ["*.example.com"], [origin.port])
    reader, writer = await asyncio.open_unix_connection(gate.path)
    writer.write(f"CONNECT API.Example.com.:{origin.port} HTTP/1.1\r\n\r\n".encode())
    assert status_of(await reader.readuntil(b"\r\n\r\n")) == 200
    # What goes through a tunnel is not looked at, whatever it is.
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
async def test_every_other_place_is_refused_and_remembered(opened: Open, target: str, reason: str) -> None:
    names = Names(["127.0.0.1"])
    gate = await opened(names, ["api.example.com"], [80, 443])
    answer = await through(gate.path, f"GET {target} HTTP/1.1\r\n\r\n".encode())
    assert (status_of(answer), refusal_in(answer)) == (403, reason)
    assert [refusal.reason for refusal in gate.violations] == [reason]
    # A question about a name that is not allowed would carry it outside all the same.
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
async def test_an_allowed_name_that_leads_inside_is_refused(opened: Open, origin: Origin, addresses: list[str]) -> None:
    gate = await opened(Names(addresses), ["api.example.com"], [origin.port])
    answer = await through(gate.path, f"CONNECT api.example.com:{origin.port} HTTP/1.1\r\n\r\n".encode())
    assert (status_of(answer), refusal_in(answer)) == (403, ADDRESS_NOT_ALLOWED)
    assert gate.violations == (EgressRefusal("api.example.com", origin.port, ADDRESS_NOT_ALLOWED),)
    assert origin.connections == 0


async def test_a_name_is_asked_for_once_and_what_was_checked_is_connected_to(
    opened: Open, stack: AsyncExitStack
) -> None:
    checked = await stack.enter_async_context(Origin().listening("127.0.0.1"))
    other = await stack.enter_async_context(Origin().listening("127.0.0.2", checked.port))
    names = Names(["127.0.0.1"], ["127.0.0.2"])
    gate = await opened(names, ["rebinds.example"], [checked.port])
    request = f"GET http://rebinds.example:{checked.port}/ HTTP/1.1\r\n\r\n".encode()
    assert status_of(await through(gate.path, request)) == 200
    assert (names.asked, checked.connections, other.connections) == (["rebinds.example"], 1, 0)
    assert refusal_in(await through(gate.path, request)) == ADDRESS_NOT_ALLOWED
    assert other.connections == 0


async def test_a_name_without_an_answer_is_no_violation(opened: Open) -> None:
    gate = await opened(Names(), ["api.example.com"], [80])
    assert status_of(await through(gate.path, b"GET http://api.example.com/ HTTP/1.1\r\n\r\n")) == 502
    assert gate.violations == ()


async def test_the_first_address_that_answers_is_used(opened: Open, origin: Origin) -> None:
    proxy = EgressProxy([ip_network("127.0.0.0/8")], resolve=Names(["127.0.0.9", "127.0.0.1"]))
    gate = await proxy.open(["api.example.com"], [origin.port])
    try:
        request = f"GET http://api.example.com:{origin.port}/ HTTP/1.1\r\n\r\n".encode()
        assert status_of(await through(gate.path, request)) == 200
    finally:
        await proxy.close()


async def test_what_is_malformed_goes_nowhere(opened: Open, origin: Origin) -> None:
    gate = await opened(Names(["127.0.0.1"]), ["api.example.com"], [origin.port])
    lines = f"POST http://api.example.com:{origin.port}/ HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert status_of(await through(gate.path, lines.encode() + b"0\r\n\r\nGET /admin HTTP/1.1\r\n\r\n")) == 400
    assert origin.connections == 0


async def test_nothing_follows_the_body_that_was_announced(opened: Open, origin: Origin) -> None:
    gate = await opened(Names(["127.0.0.1"]), ["api.example.com"], [origin.port])
    head = f"POST http://api.example.com:{origin.port}/ HTTP/1.1\r\nContent-Length: 4\r\n\r\n".encode()
    assert status_of(await through(gate.path, head + b"bodyGET /second HTTP/1.1\r\n\r\n")) == 200
    await gate.close()
    assert b"second" not in b"".join(origin.received)


async def test_chunks_are_carried_to_their_end_and_no_further(opened: Open, origin: Origin) -> None:
    gate = await opened(Names(["127.0.0.1"]), ["api.example.com"], [origin.port])
    head = f"POST http://api.example.com:{origin.port}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    assert status_of(await through(gate.path, head + b"4\r\nbody\r\n0\r\n\r\nGET /second HTTP/1.1\r\n\r\n")) == 200
    await gate.close()
    assert b"second" not in b"".join(origin.received)


async def test_a_head_that_is_too_large_is_refused(opened: Open) -> None:
    gate = await opened(Names(["127.0.0.1"]), ["api.example.com"], [80], limits=EgressLimits(head_bytes=1000))
    request = b"GET http://api.example.com/ HTTP/1.1\r\n" + b"X: " + b"a" * 100_000 + b"\r\n\r\n"
    assert status_of(await through(gate.path, request)) == 431


async def test_a_head_that_never_ends_does_not_keep_its_connection(opened: Open) -> None:
    gate = await opened(Names(["127.0.0.1"]), ["api.example.com"], [80], limits=EgressLimits(head_seconds=0.1))
    assert await through(gate.path, b"GET http://api.example.com/ HTTP/1.1\r\nX: ") == b""


async def test_a_tunnel_in_which_nothing_moves_is_closed(opened: Open, origin: Origin) -> None:
    gate = await opened(Names(["127.0.0.1"]), ["api.example.com"], [origin.port], limits=EgressLimits(idle_seconds=0.1))
    answer = await through(gate.path, f"CONNECT api.example.com:{origin.port} HTTP/1.1\r\n\r\n".encode())
    assert status_of(answer) == 200


@pytest.mark.parametrize("method", ["CONNECT", "POST"])
async def test_who_only_listens_or_only_speaks_may_do_so_for_as_long_as_something_moves(
    opened: Open, stack: AsyncExitStack, method: str
) -> None:
    """A download in a tunnel, and an upload that is answered at its end: each is silent in one direction."""
    idle = 1.0

    async def slowly(writer: asyncio.StreamWriter) -> None:
        clock = asyncio.get_running_loop().time
        ends = clock() + 2 * idle
        while clock() < ends:
            writer.write(b"1\r\nx\r\n")
            await asyncio.sleep(idle / 50)
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
    gate = await opened(Names(["127.0.0.1"]), ["api.example.com"], [port], limits=EgressLimits(idle_seconds=idle))
    reader, writer = await asyncio.open_unix_connection(gate.path)
    if method == "CONNECT":
        writer.write(f"CONNECT api.example.com:{port} HTTP/1.1\r\n\r\n".encode())
    else:
        url = f"http://api.example.com:{port}/"
        writer.write(f"POST {url} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        await slowly(writer)
    assert (await reader.read()).endswith(b"the end")
    writer.close()


async def test_there_are_only_so_many_connections_at_once(opened: Open, stack: AsyncExitStack) -> None:
    gate = await opened(Names(["127.0.0.1"]), ["api.example.com"], [80], limits=EgressLimits(connections=2))
    held = [await asyncio.open_unix_connection(gate.path) for _ in range(2)]
    for _, writer in held:
        writer.write(b"GET")
    reader, writer = await asyncio.open_unix_connection(gate.path)
    assert status_of(await reader.read()) == 503
    for each in (writer, *(writer for _, writer in held)):
        each.close()


async def test_more_than_the_account_holds_ends_the_connection_and_is_typed(opened: Open, origin: Origin) -> None:
    limits = EgressLimits(traffic_bytes=1000)
    gate = await opened(Names(["127.0.0.1"]), ["api.example.com"], [origin.port], limits=limits)
    head = f"POST http://api.example.com:{origin.port}/ HTTP/1.1\r\nContent-Length: 5000\r\n\r\n".encode()
    await through(gate.path, head + b"x" * 5000)
    await gate.close()
    assert [refusal.reason for refusal in gate.violations] == [TRAFFIC_LIMIT]
    error = refusal_error(gate.violations)
    assert error is not None
    assert (error.reason, error.metadata["limit"]) == (Reason.RESOURCE_LIMIT_EXCEEDED, "traffic")


async def test_a_connection_that_is_kept_spends_what_the_call_has_that_uses_it(opened: Open, origin: Origin) -> None:
    gate = await opened(
        Names(["127.0.0.1"]), ["api.example.com"], [origin.port], limits=EgressLimits(traffic_bytes=1000)
    )
    reader, writer = await asyncio.open_unix_connection(gate.path)
    writer.write(f"CONNECT api.example.com:{origin.port} HTTP/1.1\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    for call in range(1, 4):
        writer.write(b"x" * 600)
        await until(lambda sent=call * 600: len(b"".join(origin.received)) >= sent)  # type: ignore[misc]
        assert gate.take() == ()
    writer.close()


async def test_a_violation_names_the_host_and_belongs_to_one_call(opened: Open) -> None:
    gate = await opened(Names(["127.0.0.1"]), [], [443])
    await through(gate.path, b"CONNECT evil.example:443 HTTP/1.1\r\n\r\n")
    error = refusal_error(gate.take())
    assert error is not None
    assert (error.reason, error.metadata["host"]) == (Reason.NETWORK_POLICY_VIOLATION, "evil.example")
    assert gate.violations == ()


async def test_only_the_first_violations_are_remembered(opened: Open) -> None:
    gate = await opened(Names(["127.0.0.1"]), [], [443])
    for number in range(40):
        await through(gate.path, f"CONNECT h{number}.example:443 HTTP/1.1\r\n\r\n".encode())
    assert len(gate.violations) == 32
    assert gate.violations[0].host == "h0.example"


async def test_each_way_out_has_its_own_policy(origin: Origin) -> None:
    proxy = EgressProxy(LOCAL, resolve=Names(["127.0.0.1"]))
    try:
        one = await proxy.open(["one.example"], [origin.port])
        two = await proxy.open(["two.example"], [origin.port])
        request = f"GET http://one.example:{origin.port}/ HTTP/1.1\r\n\r\n".encode()
        assert status_of(await through(one.path, request)) == 200
        assert status_of(await through(two.path, request)) == 403
        assert (one.violations, len(two.violations)) == ((), 1)
    finally:
        await proxy.close()


async def test_a_closed_way_out_leaves_nothing_behind(origin: Origin) -> None:
    proxy = EgressProxy(LOCAL, resolve=Names(["127.0.0.1"]))
    gate, other = await proxy.open(["a.example"], [origin.port]), await proxy.open(["b.example"], [origin.port])
    folder = Path(gate.path).parent
    # Whoever is shown the socket may use it; nobody else learns its name.
    assert [os.stat(path).st_mode & 0o777 for path in (folder, gate.path)] == [0o711, 0o666]  # noqa: PTH116
    reader, writer = await asyncio.open_unix_connection(gate.path)
    writer.write(f"CONNECT a.example:{origin.port} HTTP/1.1\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    # It does not wait for its connections to end by themselves.
    await asyncio.wait_for(gate.close(), 20)
    assert await reader.read() == b""
    writer.close()
    assert [os.path.exists(each.path) for each in (gate, other)] == [False, True]  # noqa: ASYNC240, PTH110
    await proxy.close()
    assert not folder.exists()


async def test_a_server_that_takes_nothing_keeps_nothing_of_ours(stack: AsyncExitStack) -> None:
    """A tool and a server that belong together could otherwise hold a file of the executor's for every connection they ever had."""
    idle = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    port = idle.getsockname()[1]
    proxy = EgressProxy(LOCAL, resolve=Names(["127.0.0.1"]))
    stack.push_async_callback(proxy.close)
    gate = await proxy.open(["api.example.com"], [port])
    before = sockets()
    client = stack.enter_context(socket.socket(socket.AF_UNIX))
    client.connect(gate.path)
    client.send(f"CONNECT api.example.com:{port} HTTP/1.1\r\n\r\n".encode())
    taken = stack.enter_context((await asyncio.to_thread(idle.accept))[0])
    client.setblocking(False)
    # As much as all who are between the two take, and no more.
    while await writable(client):
        client.send(b"x" * 65536)
    await gate.close()
    client.close()
    await until(lambda: len(sockets() - before - {os.fstat(taken.fileno()).st_ino}) == 0)


async def writable(client: socket.socket) -> bool:
    """Say whether more can be sent; waits for others to take what was sent before it says no."""
    return bool((await asyncio.to_thread(select.select, [], [client], [], 0.5))[1])


def sockets() -> set[int]:
    """The sockets that this process holds."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            status = entry.stat()
            if stat.S_ISSOCK(status.st_mode):
                found.add(status.st_ino)
    return found


async def test_names_without_an_answer_hold_up_nobody_elses(
    monkeypatch: pytest.MonkeyPatch, stack: AsyncExitStack, origin: Origin
) -> None:
    """Whoever owns a name decides when it is answered, and a pattern covers as many names as they like."""
    released = threading.Event()
    stack.callback(released.set)

    def look_up(host: str) -> list[Any]:
        if host.endswith(".slow.example"):
            released.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 0))]

    monkeypatch.setattr(dialing, "_look_up", look_up)
    proxy = EgressProxy(LOCAL)
    stack.push_async_callback(proxy.close)
    slow = await proxy.open(["*.slow.example"], [80])
    other = await proxy.open(["api.example.com"], [origin.port])
    for nth in range(20):
        _, writer = await asyncio.open_unix_connection(slow.path)
        writer.write(f"CONNECT n{nth}.slow.example:80 HTTP/1.1\r\n\r\n".encode())
        stack.callback(writer.close)
    await until(lambda: len(slow._carried) == 20)
    request = f"GET http://api.example.com:{origin.port}/ HTTP/1.1\r\n\r\n".encode()
    assert status_of(await through(other.path, request)) == 200


async def test_the_machine_resolves_names_in_threads_of_its_own() -> None:
    resolver = SystemResolver()
    assert "127.0.0.1" in await resolver("localhost")
    with pytest.raises(OSError):
        await resolver("no-such-name.invalid")
    resolver.close()
