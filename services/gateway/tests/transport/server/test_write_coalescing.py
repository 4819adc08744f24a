"""What leaves the gateway as one write, and what does not wait."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, cast

import pytest
import uvicorn
from uvicorn.server import ServerState

from libs.common.auth.peers import EDGE
from libs.common.telemetry.log import Log
from services.gateway.transport.asgi_types import Receive, Scope, Send
from services.gateway.transport.server.peer_check import peer_checking_protocol
from services.gateway.transport.server.write_coalescing import LARGE_BYTES, CoalescingTransport

pytestmark = pytest.mark.asyncio(loop_scope="module")
HEALTH = b"GET /healthz HTTP/1.1\r\nhost: gateway\r\n\r\n"


class Recording(asyncio.Transport):
    """A transport that notes what happens to it."""

    def __init__(self) -> None:
        certificate = {"subjectAltName": (("URI", "spiffe://toolmesh.local/edge"),)}
        super().__init__({"peername": ("127.0.0.1", 1), "peercert": certificate})
        self.seen: list[Any] = []
        self.reading = True
        self.protocol: asyncio.BaseProtocol = asyncio.Protocol()
        self.full: Callable[[], None] = lambda: None
        """What a transport does that cannot pass on what is written."""
        self.paused = asyncio.Event()

    def write(self, data: Any) -> None:
        self.seen.append(bytes(data))
        if len(data) > LARGE_BYTES:
            self.full()
            self.paused.set()

    def write_eof(self) -> None:
        self.seen.append("eof")

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        self.seen.append("close")

    def abort(self) -> None:
        self.seen.append("abort")

    def is_closing(self) -> bool:
        return "close" in self.seen or "abort" in self.seen

    def is_reading(self) -> bool:
        return self.reading

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol

    def get_write_buffer_size(self) -> int:
        return 100

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self.limits

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.limits = (low or 0, high or 0)


def _coalescing() -> tuple[Recording, CoalescingTransport]:
    below = Recording()
    return below, CoalescingTransport(below, asyncio.get_running_loop())


async def _next_turn() -> None:
    await asyncio.sleep(0)


async def test_a_head_leaves_with_its_body() -> None:
    below, transport = _coalescing()
    transport.write(b"head")
    assert below.seen == []
    transport.write(b"body")
    assert below.seen == [b"headbody"]
    await _next_turn()
    assert below.seen == [b"headbody"]


async def test_an_empty_body_lets_its_head_go() -> None:
    below, transport = _coalescing()
    transport.write(b"head")
    transport.write(b"")
    assert below.seen == [b"head"]


async def test_nothing_waits_longer_than_to_the_next_turn() -> None:
    below, transport = _coalescing()
    for part in (b"head", b"first", b"second"):
        transport.write(part)
    await _next_turn()
    assert below.seen == [b"headfirst", b"second"]
    transport.write(b"third")
    await _next_turn()
    assert below.seen == [b"headfirst", b"second", b"third"]


async def test_what_is_held_does_not_change_with_the_buffer_it_came_from() -> None:
    below, transport = _coalescing()
    buffer = bytearray(b"head")
    transport.write(buffer)
    buffer[:] = b"else"
    await _next_turn()
    assert below.seen == [b"head"]


async def test_a_large_part_goes_on_as_it_is_after_what_came_before() -> None:
    below, transport = _coalescing()
    large = bytes(LARGE_BYTES + 1)
    transport.write(b"head")
    transport.write(large)
    assert below.seen == [b"head", large]
    transport.write(large)
    assert below.seen == [b"head", large, large]


async def test_lines_leave_as_one() -> None:
    below, transport = _coalescing()
    transport.write(b"head")
    transport.writelines([b"a", b"b"])
    assert below.seen == [b"headab"]


@pytest.mark.parametrize(
    ("end", "seen"),
    [
        (CoalescingTransport.close, [b"head", "close"]),
        (CoalescingTransport.write_eof, [b"head", "eof"]),
        (CoalescingTransport.abort, ["abort"]),
    ],
)
async def test_what_is_held_at_the_end_leaves_before_it_unless_all_is_given_up(
    end: Callable[[CoalescingTransport], None], seen: list[Any]
) -> None:
    below, transport = _coalescing()
    transport.write(b"head")
    end(transport)
    await _next_turn()
    assert below.seen == seen


async def test_everything_else_is_the_business_of_the_transport_below() -> None:
    below, transport = _coalescing()
    assert transport.get_extra_info("peername") == ("127.0.0.1", 1)
    assert transport.get_extra_info("cipher", "none") == "none"
    transport.pause_reading()
    assert (below.reading, transport.is_reading()) == (False, False)
    transport.resume_reading()
    assert (below.reading, transport.is_reading()) == (True, True)
    protocol = asyncio.Protocol()
    transport.set_protocol(protocol)
    assert (below.protocol, transport.get_protocol()) == (protocol, protocol)
    transport.set_write_buffer_limits(high=20, low=10)
    assert transport.get_write_buffer_limits() == (10, 20)
    assert transport.can_write_eof()
    assert not transport.is_closing()
    transport.close()
    assert transport.is_closing()


async def test_what_is_held_counts_as_waiting() -> None:
    _, transport = _coalescing()
    transport.write(b"head")
    assert transport.get_write_buffer_size() == 104


class _Served:
    """The server's protocol above a recording transport, with an application that sends what the test asks for."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self.below, self._events = Recording(), events
        self._going: asyncio.Queue[None] = asyncio.Queue()
        config = uvicorn.Config(self._answer, interface="asgi3", lifespan="off", server_header=False, date_header=False)
        kind: Any = peer_checking_protocol("toolmesh.local", {EDGE}, Log("gateway"))
        self.protocol = kind(config, ServerState(), {})
        self.protocol.connection_made(self.below)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        for event in self._events:
            await send(event)
        self._going.put_nowait(None)

    async def ask(self, verb: bytes = b"GET") -> list[Any]:
        """Return what was written by the time that the request is answered."""
        self.below.seen.clear()
        self.protocol.data_received(verb + HEALTH.removeprefix(b"GET"))
        await self._going.get()
        return list(self.below.seen)


def _start(*headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": 200, "headers": list(headers)}


def _body(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def test_the_server_writes_an_answer_once_and_the_connection_lives_on() -> None:
    served = _Served(_start((b"content-length", b"4")), _body(b"body"))
    for _ in range(2):
        assert await served.ask() == [b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody"]
    served.protocol.shutdown()
    assert served.below.seen[1:] == ["close"]


async def test_a_head_without_a_body_leaves_on_the_next_turn() -> None:
    served = _Served(_start((b"content-length", b"4")), _body(b"body"))
    await served.ask(b"HEAD")
    await _next_turn()
    assert served.below.seen == [b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"]


async def test_an_answer_that_ends_its_connection_leaves_first() -> None:
    served = _Served(_start((b"content-length", b"0"), (b"connection", b"close")), _body(b""))
    written, end = await served.ask()
    assert (written.startswith(b"HTTP/1.1 200 OK"), end) == (True, "close")


async def test_parts_of_a_stream_leave_in_order() -> None:
    served = _Served(_start(), _body(b"one", more=True), _body(b"two", more=True), _body(b""))
    seen = await served.ask()
    assert seen[0].endswith(b"\r\n\r\n3\r\none\r\n")
    assert seen[1:] == [b"3\r\ntwo\r\n0\r\n\r\n"]


async def test_a_writer_waits_while_the_buffer_is_full() -> None:
    large = bytes(LARGE_BYTES + 1)
    served = _Served(_start((b"content-length", b"%d" % (2 * len(large)))), _body(large, more=True), _body(large))
    served.below.full = served.protocol.pause_writing
    asking = asyncio.create_task(served.ask())
    await served.below.paused.wait()
    await _next_turn()
    assert len(served.below.seen) == 2
    served.below.full = lambda: None
    served.protocol.resume_writing()
    assert (await asking)[1:] == [large, large]


async def test_a_client_that_leaves_half_way_harms_no_other() -> None:
    served = _Served(_start((b"content-length", b"4")))
    await served.ask()
    served.protocol.connection_lost(None)
    await _next_turn()
    assert served.below.is_closing()


class _Arrivals(asyncio.Protocol):
    """A client that notes what arrives at a time."""

    def __init__(self) -> None:
        self.parts: asyncio.Queue[bytes] = asyncio.Queue()

    def data_received(self, data: bytes) -> None:
        self.parts.put_nowait(data)


async def _connected(mesh: Any) -> tuple[asyncio.Transport, _Arrivals]:
    identity, context = mesh.pki.of(EDGE), ssl.create_default_context(cafile=str(mesh.pki.ca))
    context.load_cert_chain(identity.cert, identity.key)
    loop = asyncio.get_running_loop()
    transport, arrivals = await loop.create_connection(_Arrivals, "127.0.0.1", mesh.port, ssl=context)
    return cast(asyncio.Transport, transport), arrivals  # type: ignore[redundant-cast]


async def _until(arrivals: _Arrivals, complete: Callable[[bytes], bool]) -> bytes:
    text = b""
    while not complete(text):
        text += await asyncio.wait_for(arrivals.parts.get(), 10)
    return text


async def test_requests_behind_each_other_are_answered_in_order(mesh: Any) -> None:
    transport, arrivals = await _connected(mesh)
    transport.write(HEALTH + HEALTH.replace(b"GET", b"HEAD") + HEALTH.replace(b"/healthz", b"/none"))
    text = await _until(arrivals, lambda text: text.count(b"HTTP/1.1") == 3 and text.endswith(b"}"))
    assert [part[:4] for part in text.split(b"HTTP/1.1 ")[1:]] == [b"200 ", b"200 ", b"404 "]
    assert text.count(b'{"status":"serving"}') == 1
    transport.close()


async def test_a_body_that_is_waited_for_is_asked_for(mesh: Any) -> None:
    transport, arrivals = await _connected(mesh)
    head = b"POST /rpc HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\ncontent-length: 2\r\n"
    transport.write(head + b"expect: 100-continue\r\n\r\n")
    assert (await _until(arrivals, lambda text: text.endswith(b"\r\n\r\n"))).startswith(b"HTTP/1.1 100 ")
    transport.write(b"[]")
    assert (await _until(arrivals, lambda text: text.endswith(b"}"))).startswith(b"HTTP/1.1 200 ")
    transport.close()
