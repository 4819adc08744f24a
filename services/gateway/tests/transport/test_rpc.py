"""Messages of JSON-RPC 2.0, single and in batches, over real mutual TLS, with real peers behind it."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from services.gateway.tests.peers import HUGE
from services.gateway.tests.rpc_answers import error_of

# One gateway serves the whole module; each test sees only what it did itself.
pytestmark = pytest.mark.asyncio(loop_scope="module")

DIGEST = "sha256:" + "a" * 64


async def test_a_tool_is_called_and_its_result_comes_back_whole(mesh: Any) -> None:
    response = await mesh.client().call(
        "tools.invoke",
        {
            "tool": "echo",
            "version": "^1.0",
            "arguments": {"text": "hi"},
            "idempotency_key": "k1",
            "session_id": "s1",
            "task_id": "t1",
            "native_call_id": "n1",
            "tool_digest": DIGEST,
        },
        call_id="abc",
    )
    assert response.status_code == 200
    assert (response.json()["jsonrpc"], response.json()["id"]) == ("2.0", "abc")
    assert response.json()["result"]["structured_content"] == {"text": "hi"}
    assert response.json()["result"]["status"] == "succeeded"
    request, _ = mesh.peers.executor.seen[0]
    assert (request.tool, request.version, request.idempotency_key) == ("echo", "^1.0", "k1")
    assert (request.session_id, request.task_id, request.native_call_id) == ("s1", "t1", "n1")
    assert request.tool_digest == DIGEST


@pytest.mark.parametrize("number", [HUGE, 2**63 - 1, -(2**63), 2**53 + 1])
async def test_integers_of_64_bits_survive_both_ways(mesh: Any, number: int) -> None:
    response = await mesh.client().invoke("echo", {"n": number})
    assert orjson.loads(mesh.peers.executor.seen[0][0].arguments) == {"n": number}
    assert orjson.loads(response.content)["result"]["structured_content"] == {"n": number}


@pytest.mark.parametrize("call_id", ["x", 7, HUGE, 1.5, None, ""])
async def test_the_id_is_answered_as_it_was_sent(mesh: Any, call_id: Any) -> None:
    response = await mesh.client().call("rpc.discover", call_id=call_id)
    assert orjson.loads(response.content)["id"] == call_id


@pytest.mark.parametrize(
    ("payload", "code", "reason"),
    [
        (b"", -32700, "INVALID_JSON"),
        (b"{", -32700, "INVALID_JSON"),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"rpc.discover"}', -32700, "INVALID_JSON"),
        (b'{"jsonrpc":"2.0","id":18446744073709551616,"method":"rpc.discover"}', -32700, "INVALID_JSON"),
        (b'{"jsonrpc":"2.0","id":NaN,"method":"rpc.discover"}', -32700, "INVALID_JSON"),
        (b'{"jsonrpc":"2.0","id":1e400,"method":"rpc.discover"}', -32700, "INVALID_JSON"),
        (b'{"jsonrpc":"2.0","id":"\\ud800","method":"rpc.discover"}', -32700, "INVALID_JSON"),
        (b'\xff\xfe{"jsonrpc":"2.0"}', -32700, "INVALID_JSON"),
        (b"\xef\xbb\xbf{}", -32700, "INVALID_JSON"),
        (b"[]", -32600, "INVALID_REQUEST"),
        (b"1", -32600, "INVALID_REQUEST"),
        (b'"x"', -32600, "INVALID_REQUEST"),
        (b"{}", -32600, "INVALID_REQUEST"),
        (b'{"jsonrpc":"1.0","id":1,"method":"rpc.discover"}', -32600, "INVALID_REQUEST"),
        (b'{"jsonrpc":"2.0","id":1,"method":1}', -32600, "INVALID_REQUEST"),
        (b'{"jsonrpc":"2.0","id":[1],"method":"rpc.discover"}', -32600, "INVALID_REQUEST"),
        (b'{"jsonrpc":"2.0","id":true,"method":"rpc.discover"}', -32600, "INVALID_REQUEST"),
        (b'{"jsonrpc":"2.0","id":1,"method":"rpc.discover","params":"x"}', -32600, "INVALID_REQUEST"),
        (b'{"jsonrpc":"2.0","id":1,"method":"no.such"}', -32601, "METHOD_NOT_FOUND"),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools.invoke","params":["echo"]}', -32602, "INVALID_PARAMS"),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools.invoke"}', -32602, "INVALID_PARAMS"),
        (b'{"jsonrpc":"2.0","id":1,"method":"rpc.discover","params":{"x":1}}', -32602, "INVALID_PARAMS"),
        (b"[" + b",".join([b"1"] * 51) + b"]", -32600, "INVALID_REQUEST"),
    ],
)
async def test_what_is_no_call_gets_the_error_that_the_protocol_names(
    mesh: Any, payload: bytes, code: int, reason: str
) -> None:
    response = await mesh.client().post(payload)
    assert response.status_code == 200
    assert (error_of(response)["code"], error_of(response)["data"]["reason"]) == (code, reason)
    assert mesh.peers.executor.seen == []


@pytest.mark.parametrize(
    ("depth", "limit"),
    [
        (65, {"limit_depth": "64"}),
        (200, {"limit_depth": "64"}),
        (1500, {"limit_depth": "64"}),
        (100_000, {"limit_containers": "50000"}),
    ],
)
async def test_nesting_beyond_the_limit_is_too_large(mesh: Any, depth: int, limit: dict[str, str]) -> None:
    response = await mesh.client().post(b"[" * depth + b"]" * depth)
    assert (response.status_code, error_of(response)["data"]["reason"]) == (413, "PAYLOAD_TOO_LARGE")
    assert error_of(response)["data"]["metadata"] == limit


async def test_every_wrong_parameter_is_listed_at_once(mesh: Any) -> None:
    params = {"arguments": [], "timeout_ms": 0, "a/b": 1, "task_id": "x" * 200}
    response = await mesh.client().call("tools.invoke", params)
    violations = {v["path"]: v["rule"] for v in error_of(response)["data"]["violations"]}
    assert violations == {
        "/tool": "required",
        "/arguments": "type",
        "/timeout_ms": "minimum",
        "/a~1b": "additionalProperties",
        "/task_id": "maxLength",
    }


async def test_a_batch_is_answered_in_its_own_order_and_runs_a_few_at_a_time(mesh: Any) -> None:
    entries = [
        {"jsonrpc": "2.0", "id": n, "method": "tools.invoke", "params": {"tool": "held", "arguments": {"n": n}}}
        for n in range(20)
    ]
    sending = asyncio.create_task(mesh.client().post(orjson.dumps(entries)))
    await mesh.peers.executor.reached(8)
    mesh.peers.executor.release.set()
    answers = (await sending).json()
    assert [a["id"] for a in answers] == list(range(20))
    assert [a["result"]["structured_content"]["n"] for a in answers] == list(range(20))
    assert mesh.peers.executor.most_at_once == 8


async def test_each_entry_of_a_batch_is_a_call_of_its_own_within_one_trace(mesh: Any) -> None:
    params = [{"tool": "echo", "arguments": {}, "timeout_ms": ms} for ms in (1_000, 100_000)]  # type: ignore[var-annotated]
    batch = [{"jsonrpc": "2.0", "id": n, "method": "tools.invoke", "params": params[n]} for n in range(2)]
    await mesh.client().post(orjson.dumps(batch))
    first, second = sorted((call for _, call in mesh.peers.executor.seen), key=lambda call: float(call.offered or 0))
    assert first.trace.trace_id == second.trace.trace_id
    assert first.trace.parent_id != second.trace.parent_id
    assert 0 < (first.offered or 0) <= 1 < (second.offered or 0) <= 100


async def test_a_batch_mixes_calls_notifications_and_nonsense(mesh: Any) -> None:
    invoke = {"jsonrpc": "2.0", "method": "tools.invoke", "params": {"tool": "echo", "arguments": {}}}
    response = await mesh.client().post(
        orjson.dumps([{**invoke, "id": 1}, invoke, 5, {"id": "q"}, {**invoke, "id": 2}])
    )
    assert response.status_code == 200
    answers = response.json()
    assert [a["id"] for a in answers] == [1, None, "q", 2]
    assert ["result" in a for a in answers] == [True, False, False, True]
    assert len(mesh.peers.executor.seen) == 3


async def test_notifications_get_no_answer(mesh: Any) -> None:
    client = mesh.client()
    single = b'{"jsonrpc":"2.0","method":"tools.invoke","params":{"tool":"echo"}}'
    for payload in (single, b"[" + single + b"," + single + b"]", b'{"jsonrpc":"2.0","method":"no.such"}'):
        response = await client.post(payload)
        assert (response.status_code, response.content) == (204, b"")
    assert len(mesh.peers.executor.seen) == 3


async def test_in_a_batch_every_failure_keeps_to_its_own_answer(mesh: Any) -> None:
    entries = [
        {"jsonrpc": "2.0", "id": tool, "method": "tools.invoke", "params": {"tool": tool}}
        for tool in ("fail_token_revoked", "echo")
    ]
    response = await mesh.client().post(orjson.dumps(entries))
    assert response.status_code == 200
    assert ["error" in a for a in response.json()] == [True, False]


async def test_each_call_leaves_one_line_and_never_its_token(mesh: Any) -> None:
    token = mesh.signer.mint()
    client = mesh.client(token=token)
    await client.invoke("echo", x_deadline_ms="5000")
    await client.call("made.up")
    await client.post(b"{")
    lines = [line for line in mesh.lines() if line["event"] == "call"]
    assert [(line["method"], line["code"]) for line in lines] == [
        ("rpc/tools.invoke", "OK"),
        ("rpc/unknown", "UNIMPLEMENTED"),
        ("rpc/malformed", "INVALID_ARGUMENT"),
    ]
    assert lines[0]["deadline_ms"] == 5000.0
    assert all(len(line["trace_id"]) == 32 and line["ms"] >= 0 and line["peer"] == "edge" for line in lines)
    assert token not in str(mesh.lines())


async def test_a_message_that_the_edge_refuses_is_answered_by_the_rules_of_json_rpc(mesh: Any) -> None:
    """A batch gets one error for each call, a notification nothing, and no peer is asked."""
    client = mesh.client()
    call = {"jsonrpc": "2.0", "method": "tools.invoke", "params": {"tool": "echo", "arguments": {}}}
    body = orjson.dumps([call | {"id": 1}, call, call | {"id": "b"}])
    batch = await client.post(body, x_toolmesh_refusal="TOKEN_EXPIRED")
    assert (batch.status_code, batch.headers["www-authenticate"]) == (401, "Bearer")
    assert [(each["id"], each["error"]["data"]["reason"]) for each in batch.json()] == [
        (1, "TOKEN_EXPIRED"),
        ("b", "TOKEN_EXPIRED"),
    ]
    silent = await client.post(orjson.dumps(call), x_toolmesh_refusal="UNAUTHENTICATED")
    assert (silent.status_code, silent.content) == (401, b"")
    single = await client.post(orjson.dumps(call | {"id": 7}), x_toolmesh_refusal="whatever")
    assert (single.status_code, single.json()["id"]) == (401, 7)
    assert single.json()["error"]["data"]["reason"] == "TOKEN_MALFORMED"
    for malformed in (b"{}", b"[", b'{"jsonrpc": "2.0"}'):
        refused = await client.post(malformed, x_toolmesh_refusal="UNAUTHENTICATED")
        assert (refused.status_code, refused.json()["id"]) == (401, None)
        assert refused.json()["error"]["data"]["reason"] == "UNAUTHENTICATED"
