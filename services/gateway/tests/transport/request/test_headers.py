"""Headers and bodies of JSON-RPC requests: deadlines, traces, media types, sizes."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from services.gateway.tests.rpc_answers import error_of

# One gateway serves the whole module; each test sees only what it did itself.
pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_deadline_that_is_passed_on_is_smaller_than_the_one_given(mesh: Any) -> None:
    await mesh.client().invoke("echo", x_deadline_ms="9000")
    _, call = mesh.peers.executor.seen[0]
    assert 0 < call.deadline - call.started < 9.0


async def test_a_timeout_in_the_parameters_shortens_the_header(mesh: Any) -> None:
    await mesh.client().call("tools.invoke", {"tool": "echo", "timeout_ms": 9000}, x_deadline_ms="250000")
    _, call = mesh.peers.executor.seen[0]
    assert 0 < call.deadline - call.started < 9.0


async def test_a_timeout_in_the_parameters_replaces_the_default(mesh: Any) -> None:
    await mesh.client().call("tools.invoke", {"tool": "echo", "timeout_ms": 120_000})
    _, call = mesh.peers.executor.seen[0]
    assert 30.0 < call.deadline - call.started < 120.0


async def test_a_call_that_takes_too_long_ends_with_its_deadline(mesh: Any) -> None:
    response = await mesh.client().invoke("slow", x_deadline_ms="150")
    assert (response.status_code, error_of(response)["data"]["reason"]) == (200, "DEADLINE_EXCEEDED")
    await asyncio.wait_for(mesh.peers.executor.canceled.wait(), 10)


@pytest.mark.parametrize("deadline", ["0", "-5", "1.5", "abc", "300001", "", "9" * 30, "٣"])
async def test_a_malformed_deadline_is_refused_under_the_calls_own_id(mesh: Any, deadline: str) -> None:
    response = await mesh.client().call("rpc.discover", call_id=5, x_deadline_ms=deadline.encode())
    assert response.json()["id"] == 5
    assert error_of(response)["data"]["reason"] == "INVALID_REQUEST"


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("x-deadline-ms", ("1000", "2000"), "INVALID_REQUEST"),
        ("authorization", ("Bearer a.b.c", "Bearer d.e.f"), "TOKEN_MALFORMED"),
    ],
)
async def test_of_a_header_that_is_there_twice_none_is_chosen(
    mesh: Any, name: str, values: tuple[str, ...], reason: str
) -> None:
    body = orjson.dumps({"jsonrpc": "2.0", "id": 5, "method": "rpc.discover"})
    headers = [("content-type", "application/json"), *((name, value) for value in values)]
    response = await mesh.client(token="").http.post("/rpc", content=body, headers=headers)
    assert (response.json()["id"], error_of(response)["data"]["reason"]) == (5, reason)


async def test_the_callers_trace_and_request_id_go_on(mesh: Any) -> None:
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    response = await mesh.client().invoke(
        "echo", traceparent=f"00-{trace_id}-00f067aa0ba902b7-01", tracestate="a=b", x_request_id="req-1"
    )
    assert (response.headers["x-trace-id"], response.headers["x-request-id"]) == (trace_id, "req-1")
    _, call = mesh.peers.executor.seen[0]
    assert (call.trace.trace_id, call.trace.state, call.request_id) == (trace_id, "a=b", "req-1")


async def test_headers_that_cannot_travel_are_replaced(mesh: Any) -> None:
    response = await mesh.client().invoke("echo", x_request_id=b"\xff bad", traceparent="nonsense", tracestate=b"\xff")
    assert response.status_code == 200
    assert len(response.headers["x-request-id"]) == 36
    assert len(response.headers["x-trace-id"]) == 32


async def test_a_body_beyond_the_limit_is_refused_while_it_is_read(mesh: Any) -> None:
    sent = 0

    async def endless() -> Any:
        nonlocal sent
        for _ in range(80):
            sent += 1
            yield b" " * 65_536

    client = mesh.client()
    declared = await client.post(b" " * (4 * 1024 * 1024 + 1))
    streamed = await client.http.post("/rpc", content=endless(), headers={"content-type": "application/json"})
    for response in (declared, streamed):
        assert (response.status_code, error_of(response)["data"]["reason"]) == (413, "PAYLOAD_TOO_LARGE")
    assert (await client.call("rpc.discover")).status_code == 200


async def test_a_large_body_within_the_limit_is_taken(mesh: Any) -> None:
    response = await mesh.client().invoke("echo", {"text": "x" * 2_000_000})
    assert len(response.json()["result"]["structured_content"]["text"]) == 2_000_000


async def test_arguments_beyond_what_a_hop_carries_are_refused_here(mesh: Any) -> None:
    response = await mesh.client().invoke("echo", {"text": "x" * 3_500_000})
    assert (response.status_code, error_of(response)["data"]["reason"]) == (200, "PAYLOAD_TOO_LARGE")
    assert mesh.peers.executor.seen == []


@pytest.mark.parametrize(
    "content_type", ["", "text/plain", "application/json; charset=latin-1", "application/jsonx", "multipart/form-data"]
)
async def test_only_json_is_read(mesh: Any, content_type: str) -> None:
    response = await mesh.client().post(b"{}", content_type=content_type)
    assert (response.status_code, error_of(response)["code"]) == (415, -32600)


async def test_a_compressed_body_is_refused(mesh: Any) -> None:
    response = await mesh.client().post(b"{}", content_encoding="gzip")
    assert response.status_code == 415


@pytest.mark.parametrize(
    "content_type", ["application/json; charset=utf-8", "Application/JSON", 'application/json;charset="UTF-8"']
)
async def test_json_is_known_in_its_usual_spellings(mesh: Any, content_type: str) -> None:
    response = await mesh.client().post(b'{"jsonrpc":"2.0","id":1,"method":"rpc.discover"}', content_type=content_type)
    assert "result" in response.json()


@pytest.mark.parametrize("verb", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_other_methods_get_the_allowed_one(mesh: Any, verb: str) -> None:
    response = await mesh.client().http.request(verb, "/rpc")
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert error_of(response)["code"] == -32600


@pytest.mark.parametrize("timeout", ["9", "9.0", "9.000"])
async def test_a_timeout_in_seconds_is_a_deadline(mesh: Any, timeout: str) -> None:
    await mesh.client().invoke("echo", request_timeout=timeout, x_deadline_ms="250000")
    _, call = mesh.peers.executor.seen[0]
    assert 0 < call.deadline - call.started < 9.0


@pytest.mark.parametrize("timeout", ["0", "0.0", "-1", "1e3", "301", "9s", "", "1.2345", "9,9", "٣", "inf"])
async def test_a_malformed_timeout_is_refused_under_the_calls_own_id(mesh: Any, timeout: str) -> None:
    response = await mesh.client().call("rpc.discover", call_id=5, request_timeout=timeout.encode())
    assert response.json()["id"] == 5
    assert error_of(response)["data"]["reason"] == "INVALID_REQUEST"
    assert error_of(response)["data"]["violations"][0]["path"] == "request-timeout"


@pytest.mark.parametrize("key", ["k-1", '"k-1"'])
async def test_the_key_of_a_header_is_the_key_of_the_call(mesh: Any, key: str) -> None:
    await mesh.client().invoke("echo", idempotency_key=key)
    await mesh.client().call("tools.invoke", {"tool": "echo", "idempotency_key": "k-1"}, idempotency_key=key)
    assert [request.idempotency_key for request, _ in mesh.peers.executor.seen] == ["k-1", "k-1"]


@pytest.mark.parametrize("key", ["", "a b", '"', '""', "x" * 256, "a,b", 'a"b', "schlüssel".encode()])
async def test_a_malformed_key_is_refused_and_nothing_runs(mesh: Any, key: Any) -> None:
    response = await mesh.client().invoke("echo", idempotency_key=key)
    assert error_of(response)["data"]["reason"] == "INVALID_REQUEST"
    assert error_of(response)["data"]["violations"][0]["path"] == "idempotency-key"
    assert mesh.peers.executor.seen == []


async def test_a_key_that_differs_from_the_parameter_or_is_for_a_batch_is_refused(mesh: Any) -> None:
    client = mesh.client()
    both = await client.call("tools.invoke", {"tool": "echo", "idempotency_key": "a"}, idempotency_key="b")
    assert error_of(both)["data"]["violations"][0]["rule"] == "conflict"
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools.invoke", "params": {"tool": "echo"}}
    [answer] = (await client.post(orjson.dumps([call]), idempotency_key="k")).json()
    assert answer["error"]["data"]["violations"][0]["rule"] == "single"
    assert mesh.peers.executor.seen == []
    assert "result" in (await client.call("tools.get", {"tool": "echo"}, idempotency_key="k")).json()
