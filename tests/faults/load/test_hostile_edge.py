"""Hostile input at the edge: every answer is typed, memory stays bounded, and another client notices nothing."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.harness.mesh import Mesh, running_mesh

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]
MEGABYTE = 1024 * 1024
GROWTH_BYTES = 256 * MEGABYTE
NEIGHBOUR = "did:web:toolmesh.local:users:neighbour"


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    with running_mesh(tmp_path_factory.mktemp("hostile") / "state") as running:
        yield running


def memory(mesh: Mesh) -> dict[str, int]:
    """Return the resident bytes of what stands at the edge."""
    found = {}
    for part in ("envoy", "gateway"):
        status = Path(f"/proc/{mesh.part(part)['pid']}/status").read_text()
        found[part] = int(status.partition("VmRSS:")[2].split()[0]) * 1024
    return found


@contextmanager
def unnoticed(mesh: Mesh) -> Iterator[None]:
    """Run an attack beside a client whose calls all succeed, and compare the memory before and after."""
    token, stop, failures = mesh.token(sub=NEIGHBOUR), threading.Event(), list[Any]()
    done = threading.Semaphore(0)
    before = memory(mesh)

    def call() -> None:
        while not stop.is_set():
            answer = mesh.rpc("tools.invoke", {"tool": "echo", "arguments": {"text": "n"}}, token=token)
            if answer.status_code != 200 or "result" not in answer.json():
                failures.append(answer.text[:500])
            done.release()

    thread = threading.Thread(target=call)
    thread.start()
    try:
        assert done.acquire(timeout=120)
        yield
        # Two more calls: one that was under way, and one that began after the attack did all that it does.
        for _ in range(2):
            assert done.acquire(timeout=240)
    finally:
        stop.set()
        thread.join()
    assert failures == []
    after = memory(mesh)
    assert {part: after[part] - before[part] for part in after if after[part] - before[part] > GROWTH_BYTES} == {}


def connect(mesh: Mesh, seconds: float = 60) -> socket.socket:
    edge = urlsplit(mesh.url)
    return socket.create_connection((edge.hostname or "", edge.port or 80), timeout=seconds)


def answer_to(mesh: Mesh, data: bytes) -> bytes:
    """Send raw bytes and return all that comes back before the edge closes or is silent."""
    with connect(mesh, 10) as connection:
        connection.sendall(data)
        received = b""
        with suppress(TimeoutError, ConnectionError):
            while piece := connection.recv(65536):
                received += piece
    return received


def post(mesh: Mesh, path: str, token: str, content: Any, **headers: str) -> httpx.Response:
    sent = {"content-type": "application/json", "authorization": f"Bearer {token}", **headers}
    return httpx.post(f"{mesh.url}{path}", content=content, headers=sent, timeout=240, trust_env=False)


INNER = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.mark.parametrize(
    "headers",
    [
        b"content-length: 5\r\ntransfer-encoding: chunked\r\n",
        b"content-length: 0\r\ncontent-length: 40\r\n",
        b"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n",
        b"transfer-encoding: xchunked\r\n",
        b"transfer-encoding : chunked\r\n",
        b"content-length: +5\r\n",
        b"content-length: 5, 6\r\n",
        b"x: a\r\n b\r\ncontent-length: 1e1\r\n",
        b"\x00: a\r\n",
    ],
)
def test_requests_with_two_readings_are_refused_and_nothing_hides_in_them(mesh: Mesh, headers: bytes) -> None:
    request = (
        b"POST /rpc HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n" + headers + b"\r\n0\r\n\r\n" + INNER
    )
    with unnoticed(mesh):
        received = answer_to(mesh, request)
    assert received.count(b"HTTP/1.1 ") <= 1
    assert received[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.1 501", b"HTTP/1.1 401")


def test_floods_of_headers_are_refused(mesh: Mesh) -> None:
    many = b"".join(b"x-%d: y\r\n" % number for number in range(20_000))
    large = b"x: " + b"y" * MEGABYTE + b"\r\n"
    with unnoticed(mesh):
        for flood in (many, large):
            received = answer_to(mesh, b"POST /rpc HTTP/1.1\r\nhost: x\r\n" + flood + b"\r\n")
            assert received[:12] in (b"", b"HTTP/1.1 431")


@pytest.mark.parametrize("path", ["/rpc", "/mcp"])
def test_a_body_of_100_megabytes_is_refused_while_it_is_sent(mesh: Mesh, path: str) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * MEGABYTE

    token = mesh.token()
    with unnoticed(mesh):
        try:
            answer = post(mesh, path, token, endless())
        except (httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
            return
    assert answer.status_code == 413
    assert answer.json()["error"]["data"]["reason"] == "PAYLOAD_TOO_LARGE"


@pytest.mark.parametrize("path", ["/rpc", "/mcp"])
@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_json_of_ten_thousand_levels_is_refused(mesh: Mesh, path: str, opening: bytes) -> None:
    token = mesh.token()
    with unnoticed(mesh):
        answer = post(mesh, path, token, opening * 10_000)
    assert answer.status_code in (200, 400, 413)
    assert answer.json()["error"]["data"]["reason"] in ("PAYLOAD_TOO_LARGE", "INVALID_JSON")


def test_batches_that_multiply_are_refused_before_they_run(mesh: Mesh) -> None:
    token = mesh.token()
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools.invoke", "params": {"tool": "echo", "arguments": {"text": "x"}}}
    calls = [{"tool": "echo", "arguments": {"text": "x"}}] * 64
    group = {"jsonrpc": "2.0", "id": 1, "method": "tools.invoke_group", "params": {"calls": calls}}
    with unnoticed(mesh):
        many = post(mesh, "/rpc", token, json.dumps([call] * 10_000))
        assert many.json()["error"]["data"]["reason"] in ("INVALID_REQUEST", "PAYLOAD_TOO_LARGE")
        multiplied = post(mesh, "/rpc", token, json.dumps([group] * 50)).json()
        refused = [each for each in (multiplied if isinstance(multiplied, list) else [multiplied]) if "error" in each]
        assert refused


def test_slow_bodies_and_half_open_connections_hold_no_one_up(mesh: Mesh) -> None:
    token = mesh.token()
    head = f"POST /rpc HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n"
    with ExitStack() as stack, unnoticed(mesh):
        for number in range(300):
            connection = stack.enter_context(connect(mesh))
            slow = f"{head}content-length: 1000\r\n\r\n{{".encode()
            # Half a line, half a header, half a body.
            connection.sendall((b"POST /rp", head.encode(), slow)[number % 3])


def test_readers_that_read_nothing_are_bounded_for_each_caller(mesh: Mesh) -> None:
    token = mesh.token()
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params})
    head = (
        f"POST /mcp HTTP/1.1\r\nhost: {urlsplit(mesh.url).netloc}\r\nauthorization: Bearer {token}\r\n"
        "content-type: application/json\r\naccept: application/json, text/event-stream\r\n"
        "mcp-protocol-version: 2026-07-28\r\nmcp-method: subscriptions/listen\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    answers = []
    with ExitStack() as stack, unnoticed(mesh):
        for _ in range(40):
            connection = stack.enter_context(connect(mesh))
            connection.sendall((head + body).encode())
            answers.append(connection.recv(12))
    assert answers.count(b"HTTP/1.1 200") == 16
    assert answers.count(b"HTTP/1.1 429") == 24
