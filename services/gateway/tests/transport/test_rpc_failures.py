"""Failures of JSON-RPC calls: of peers, of credentials, of clients that leave, of a gateway at its limit."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from libs.common.errors import Reason
from services.gateway.tests.rpc_answers import error_of

# One gateway serves the whole module; each test sees only what it did itself.
pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_failure_of_a_peer_arrives_as_the_whole_envelope(mesh: Any) -> None:
    response = await mesh.client().invoke("fail_tool_not_found")
    error = error_of(response)
    assert (response.status_code, error["code"]) == (200, -32004)
    data = error["data"]
    assert data == {
        "reason": "TOOL_NOT_FOUND",
        "code": "E3101",
        "category": "TOOL_NOT_FOUND",
        "error_class": "unknown_tool",
        "retryable": False,
        "retry_after_ms": 1500.0,
        "message": error["message"],
        "resolution": data["resolution"],
        "trace_id": response.headers["x-trace-id"],
        "invocation_id": "inv-1",
        "violations": [],
        "metadata": {"hint": "here"},
    }


@pytest.mark.parametrize(
    ("reason", "status", "header"),
    [
        (Reason.TOKEN_REVOKED, 401, ("www-authenticate", "Bearer")),
        (Reason.RATE_LIMITED, 429, ("retry-after", "2")),
        (Reason.OVERLOADED, 429, ("retry-after", "2")),
        (Reason.SERVICE_UNAVAILABLE, 503, ("retry-after", "2")),
        (Reason.AUDIT_UNAVAILABLE, 503, ("retry-after", "2")),
        (Reason.CIRCUIT_OPEN, 200, None),
        (Reason.CREDENTIAL_EXPIRED, 200, None),
        (Reason.PERMISSION_DENIED, 200, None),
        (Reason.CANCELED, 200, None),
    ],
)
async def test_the_status_tells_what_concerns_the_whole_mesh(
    mesh: Any, reason: Reason, status: int, header: tuple[str, str] | None
) -> None:
    response = await mesh.client().invoke(f"fail_{reason.name.lower()}")
    assert (response.status_code, error_of(response)["data"]["reason"]) == (status, reason.name)
    if header is not None:
        assert response.headers[header[0]] == header[1]


async def test_without_a_token_the_peer_refuses_and_the_gateway_passes_it_on(mesh: Any) -> None:
    response = await mesh.client(token="").invoke("echo")
    assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
    assert error_of(response)["data"]["reason"] == "UNAUTHENTICATED"


@pytest.mark.parametrize("credential", ["Basic abc", "Bearer", "Bearer a b", b"Bearer \xff", "Bearer " + "x" * 17_000])
async def test_a_credential_that_cannot_be_a_token_is_malformed(mesh: Any, credential: Any) -> None:
    response = await mesh.client(token="").invoke("echo", authorization=credential)
    assert (response.status_code, error_of(response)["data"]["reason"]) == (401, "TOKEN_MALFORMED")


async def test_an_unexpected_error_reveals_nothing(mesh: Any) -> None:
    response = await mesh.client().invoke("crash")
    assert error_of(response)["data"]["reason"] == "INTERNAL"
    assert b"secret" not in response.content


async def test_a_client_that_goes_away_takes_its_call_with_it(mesh: Any) -> None:
    calling = asyncio.create_task(mesh.client().invoke("slow"))
    await asyncio.wait_for(mesh.peers.executor.arrived.wait(), 10)
    calling.cancel()
    await asyncio.wait_for(mesh.peers.executor.canceled.wait(), 10)
    await mesh.idle()
    assert [line["code"] for line in mesh.lines() if line["event"] == "call"] == ["CANCELLED"]
    assert [line for line in mesh.lines() if line["level"] == "error"] == []


async def test_a_client_that_goes_away_takes_its_batch_with_it(mesh: Any) -> None:
    entries = [{"jsonrpc": "2.0", "id": n, "method": "tools.invoke", "params": {"tool": "slow"}} for n in range(20)]
    calling = asyncio.create_task(mesh.client().post(orjson.dumps(entries)))
    await mesh.peers.executor.reached(8)
    calling.cancel()
    await mesh.idle()
    assert len(mesh.peers.executor.seen) == 8
    assert [line["code"] for line in mesh.lines() if line["event"] == "call"] == ["CANCELLED"] * 8


async def test_beyond_its_limit_the_gateway_says_when_to_come_back(mesh: Any) -> None:
    client = mesh.client()
    held = [asyncio.create_task(client.invoke("held")) for _ in range(9)]
    reached = asyncio.create_task(mesh.peers.executor.reached(9))
    ended, _ = await asyncio.wait([reached, *held], return_when=asyncio.FIRST_COMPLETED)
    assert ended == {reached}, [task.result().text for task in ended - {reached}]
    response = await client.invoke("echo")
    assert (response.status_code, response.headers["retry-after"]) == (429, "1")
    assert error_of(response)["data"]["reason"] == "OVERLOADED"
    mesh.peers.executor.release.set()
    assert [r.status_code for r in await asyncio.gather(*held)] == [200] * 9


async def test_a_call_that_was_lost_behind_the_gateway_says_that_it_may_have_run(mesh: Any) -> None:
    lost = (await mesh.client().invoke("lost")).json()["error"]["data"]
    assert (lost["reason"], lost["metadata"]) == ("SERVICE_UNAVAILABLE", {"outcome": "unknown"})
    refused = (await mesh.client().invoke("fail_service_unavailable")).json()["error"]["data"]
    assert "outcome" not in refused["metadata"]
