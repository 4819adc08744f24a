"""Who may connect, what else is served, and how the gateway ends."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from libs.common.auth.peers import EDGE
from libs.common.errors import MeshError, Reason
from services.gateway.authzen.endpoint import CONFIGURATION, EVALUATION
from services.gateway.domain.response import envelope
from services.gateway.tests.conftest import Client, run_mesh
from services.gateway.transport.server.peer_check import peer_name_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
BEGUN = b"POST /rpc HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"
BATCH = orjson.dumps(
    [
        {"jsonrpc": "2.0", "id": 7, "method": "tools.invoke", "params": {"tool": "slow"}},
        {"jsonrpc": "2.0", "method": "rpc.discover"},
        1,
    ]
)
QUESTION = {
    "subject": {"type": "user", "id": "did:web:toolmesh.local:users:alice"},
    "action": {"name": "invoke"},
    "resource": {"type": "tool", "id": "core.slow"},
}
HEALTH = b"GET /healthz HTTP/1.1\r\nhost: gateway\r\n\r\n"


@pytest.mark.parametrize("name", ["orchestrator", "executor", "gateway"])
async def test_a_peer_of_another_name_is_cut_off_before_its_request_is_read(mesh: Any, name: str) -> None:
    with pytest.raises(httpx.TransportError):
        await mesh.client(name).call("rpc.discover")
    assert [line["peer"] for line in mesh.lines() if "peer" in line] == [name]


async def test_the_operator_may_look(mesh: Any) -> None:
    assert (await mesh.client("operator").call("rpc.discover")).status_code == 200


async def _exchange(mesh: Any, context: ssl.SSLContext) -> bytes:
    """Return what a plain request is answered with; nothing when the connection does not hold."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", mesh.port, ssl=context)
        writer.write(HEALTH)
        answer = await reader.read(1000)
        writer.close()
    except (ssl.SSLError, ConnectionError):
        return b""
    return answer


def _context(mesh: Any, name: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(mesh.pki.ca))
    if name:
        identity = mesh.pki.of(name)
        context.load_cert_chain(identity.cert, identity.key)
    return context


async def test_only_a_client_with_a_certificate_gets_an_answer(mesh: Any) -> None:
    assert (await _exchange(mesh, _context(mesh, EDGE))).startswith(b"HTTP/1.1 200")
    assert await _exchange(mesh, _context(mesh, "")) == b""


async def test_an_old_tls_is_refused(mesh: Any) -> None:
    context = _context(mesh, EDGE)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert await _exchange(mesh, context) == b""


@pytest.mark.parametrize(
    ("alternatives", "name"),
    [
        ((("URI", "spiffe://toolmesh.local/edge"), ("DNS", "edge")), "edge"),
        ((("DNS", "spiffe://toolmesh.local/edge"),), ""),
        ((("URI", "spiffe://elsewhere/edge"),), ""),
        ((("URI", "spiffe://toolmesh.local/edge"), ("URI", "spiffe://toolmesh.local/operator")), ""),
        ((), ""),
    ],
)
async def test_the_name_is_the_one_uri_of_the_trust_domain(alternatives: Any, name: str) -> None:
    assert peer_name_of("toolmesh.local", {"subjectAltName": alternatives}) == name


async def test_no_certificate_is_no_name() -> None:
    assert peer_name_of("toolmesh.local", None) == ""


async def test_the_keys_of_the_mesh_are_public(mesh: Any) -> None:
    response = await mesh.client(token="").http.get("/.well-known/jwks.json")
    assert (response.status_code, response.json()) == (200, {"keys": []})
    assert response.headers["content-type"] == "application/json"


async def test_the_root_points_to_the_description(mesh: Any) -> None:
    pointer = (await mesh.client(token="").http.get("/")).json()
    answer = await mesh.client(token="").http.post(pointer["rpc"], json=pointer["describe"])
    assert answer.json()["result"]["openrpc"]


@pytest.mark.parametrize("path", ["/no/such", "/access/v1/nope", "/.well-known/nope"])
async def test_an_unknown_path_gets_an_envelope(mesh: Any, path: str) -> None:
    response = await mesh.client().http.get(path, headers={"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"})
    found = response.json()
    assert (response.status_code, found["reason"], found["trace_id"]) == (404, "METHOD_NOT_FOUND", "ab" * 16)
    assert found.keys() == envelope(MeshError(Reason.METHOD_NOT_FOUND), "").keys()
    assert len((await mesh.client().http.get(path)).json()["trace_id"]) == 32


async def test_pages_are_only_read(mesh: Any) -> None:
    client = mesh.client()
    response = await client.http.post("/healthz")
    assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD")
    assert response.json()["reason"] == "INVALID_REQUEST"
    assert (await client.http.head("/healthz")).status_code == 200


async def test_malformed_http_does_not_harm_the_next_request(mesh: Any) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", mesh.port, ssl=_context(mesh, EDGE))
    writer.write(b"\x00\x01 nonsense\r\n\r\n")
    assert (await reader.read(1000)).startswith(b"HTTP/1.1 400")
    writer.close()
    assert (await mesh.client().http.get("/healthz")).status_code == 200


async def test_what_was_accepted_is_finished_while_health_says_goodbye(pki: Any, signer: Any, tmp_path: Path) -> None:
    async with run_mesh(pki, signer, tmp_path) as mesh:
        client = mesh.client()
        assert (await client.http.get("/healthz")).status_code == 200
        held = asyncio.create_task(client.invoke("held"))
        await mesh.peers.executor.reached(1)
        stopping = asyncio.create_task(mesh.application.server.drain())
        await asyncio.sleep(0)
        late = Client(pki, mesh.port, EDGE, signer.mint())
        assert (await late.http.get("/healthz")).status_code == 503
        answer = await late.call("rpc.discover")
        assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        mesh.peers.executor.release.set()
        assert (await held).json()["result"]["status"] == "succeeded"
        await asyncio.wait_for(stopping, 20)
        with pytest.raises(httpx.ConnectError):
            await late.http.get("/healthz")
        await late.http.aclose()


async def test_who_has_not_heard_of_the_end_is_served_for_the_delay(pki: Any, signer: Any, tmp_path: Path) -> None:
    async with run_mesh(pki, signer, tmp_path, TOOLMESH_DRAIN_DELAY_SECONDS="60") as mesh:
        stopping = asyncio.create_task(mesh.application.server.drain())
        await asyncio.sleep(0)
        late = mesh.client()
        for _ in range(3):
            assert (await late.http.get("/healthz")).status_code == 503
            assert (await late.invoke("echo")).json()["result"]["status"] == "succeeded"
            for path in (EVALUATION, CONFIGURATION):
                assert (await late.http.get(path)).headers["connection"] == "close"
        assert not stopping.done()
        stopping.cancel()
        # It was seen to be waiting; the end of the test need not.
        mesh.application.server._drain_delay = 0.0


async def test_what_does_not_end_in_time_is_ended(pki: Any, signer: Any, tmp_path: Path) -> None:
    async with run_mesh(pki, signer, tmp_path, TOOLMESH_DRAIN_SECONDS="0") as mesh:
        slow = asyncio.create_task(mesh.client().invoke("slow"))
        batch = asyncio.create_task(mesh.client().post(BATCH))
        reader, writer = await asyncio.open_connection("127.0.0.1", mesh.port, ssl=_context(mesh, EDGE))
        writer.write(BEGUN)
        asking = asyncio.create_task(mesh.client().http.post(EVALUATION, json=QUESTION))
        await mesh.peers.executor.reached(2)
        await mesh.peers.registry.waiting.wait()
        await asyncio.wait_for(mesh.application.server.drain(), 20)
        await asyncio.wait_for(mesh.peers.executor.canceled.wait(), 10)
        await asyncio.wait_for(mesh.peers.registry.canceled.wait(), 10)
        assert [each.status_code for each in await asyncio.gather(slow, batch, asking)] == [503, 200, 503]
        # Who sent it all may find that it ran.
        assert _told(slow.result().json()) == (1, "SERVICE_UNAVAILABLE", {"outcome": "unknown"})
        assert [_told(one) for one in batch.result().json()] == [
            (7, "SERVICE_UNAVAILABLE", {"outcome": "unknown"}),
            (None, "INVALID_REQUEST", {}),
        ]
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503")
        assert _told(orjson.loads(body)) == (None, "SERVICE_UNAVAILABLE", {})
        writer.close()
        assert asking.result().json()["reason"] == "SERVICE_UNAVAILABLE"


def _told(answer: dict[str, Any]) -> tuple[Any, str, dict[str, str]]:
    found = answer["error"]["data"]
    return answer["id"], found["reason"], found["metadata"]
