"""JSON-RPC 2.0 over real mutual TLS, with real peers behind it."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import httpx
import orjson
import pytest

from libs.common.errors import Reason
from services.gateway.policy import POLICY
from services.gateway.tests.peers import HUGE

# One gateway serves the whole module; each test sees only what it did itself.
pytestmark = pytest.mark.asyncio(loop_scope="module")

DIGEST = "sha256:" + "a" * 64


def error_of(response: httpx.Response) -> Any:
    answer = response.json()
    assert answer.keys() == {"jsonrpc", "id", "error"}
    return answer["error"]


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


async def test_in_a_batch_every_failure_keeps_to_its_own_answer(mesh: Any) -> None:
    entries = [
        {"jsonrpc": "2.0", "id": tool, "method": "tools.invoke", "params": {"tool": tool}}
        for tool in ("fail_token_revoked", "echo")
    ]
    response = await mesh.client().post(orjson.dumps(entries))
    assert response.status_code == 200
    assert ["error" in a for a in response.json()] == [True, False]


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


async def test_beyond_its_limit_the_gateway_says_when_to_come_back(mesh: Any) -> None:
    client = mesh.client()
    held = [asyncio.create_task(client.invoke("held")) for _ in range(9)]
    await mesh.peers.executor.reached(9)
    response = await client.invoke("echo")
    assert (response.status_code, response.headers["retry-after"]) == (429, "1")
    assert error_of(response)["data"]["reason"] == "OVERLOADED"
    mesh.peers.executor.release.set()
    assert [r.status_code for r in await asyncio.gather(*held)] == [200] * 9


async def test_tools_are_listed_with_their_schemas(mesh: Any) -> None:
    params = {"page_size": 10.0, "page_token": "t", "namespace": "core", "tags": ["a"]}
    result = orjson.loads((await mesh.client().call("tools.list", params)).content)["result"]
    assert result["next_page_token"] == "more"
    echo, gone = result["tools"]
    assert echo["tool"]["name"] == "tools/core.echo"
    assert echo["version"]["input_schema"]["properties"]["n"]["maximum"] == HUGE
    assert echo["version"]["output_schema"] == {"type": "object"}
    assert echo["version"]["state"] == "available"
    assert gone["version"] is None
    request = mesh.peers.registry.seen[0]
    assert (request.page_size, request.page_token, request.namespace, list(request.tags)) == (10, "t", "core", ["a"])


async def test_one_tool_is_read_with_its_versions(mesh: Any) -> None:
    result = (await mesh.client().call("tools.get", {"tool": "echo"})).json()["result"]
    assert result["tool"]["name"] == "tools/core.echo"
    assert [v["input_schema"]["type"] for v in result["versions"]] == ["object"]
    missing = await mesh.client().call("tools.get", {"tool": "none"})
    assert error_of(missing)["data"]["metadata"] == {"tool": "none"}


async def test_a_reference_is_resolved(mesh: Any) -> None:
    result = (await mesh.client().call("tools.resolve", {"tool": "echo", "version": "^1"})).json()["result"]
    assert (result["digest"], result["input_schema"]["type"]) == ("sha256:00", "object")
    assert result["manifest"]["execution"]["checkpoint"]["micro_interval_ms"] == 30_000
    assert mesh.peers.registry.seen[0].version_constraint == "^1"


async def test_a_call_that_was_lost_behind_the_gateway_says_that_it_may_have_run(mesh: Any) -> None:
    lost = (await mesh.client().invoke("lost")).json()["error"]["data"]
    assert (lost["reason"], lost["metadata"]) == ("SERVICE_UNAVAILABLE", {"outcome": "unknown"})
    refused = (await mesh.client().invoke("fail_service_unavailable")).json()["error"]["data"]
    assert "outcome" not in refused["metadata"]


async def test_a_group_is_answered_call_by_call(mesh: Any) -> None:
    calls = [{"tool": "echo", "arguments": {"n": 1}}, {"tool": "fail"}]
    outcomes = (await mesh.client().call("tools.invoke_group", {"calls": calls})).json()["result"]["outcomes"]
    assert outcomes[0]["result"]["structured_content"] == {"n": 1}
    assert outcomes[0]["error"] is None
    assert outcomes[1]["result"] is None
    assert (outcomes[1]["error"]["code"], outcomes[1]["error"]["reason"]) == ("E3401", "EXECUTION_FAILED")


async def test_a_group_beyond_what_a_hop_carries_is_refused_here(mesh: Any) -> None:
    # Four bytes as they are sent, and eighteen as they are written out.
    call = b'{"tool":"echo","arguments":{"n":[' + b",".join([b"1e15"] * 100_000) + b"]}}"
    calls = b",".join([call] * 3)
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools.invoke_group","params":{"calls":[' + calls + b"]}}"
    response = await mesh.client().post(body)
    assert (response.status_code, error_of(response)["data"]["reason"]) == (200, "PAYLOAD_TOO_LARGE")


async def test_a_preview_says_what_would_change(mesh: Any) -> None:
    found = (await mesh.client().call("tools.preview", {"tool": "echo", "arguments": {"n": 1}})).json()["result"]
    assert found["changes"] == [
        {"resource": "file:a", "operation": "create", "source": "reported", "digest_before": "", "digest_after": ""}
    ]
    assert found["predicted_result"] == {"n": 1}
    assert found["preview_token"] == "t"


async def test_a_stored_result_is_read_in_one_piece(mesh: Any) -> None:
    asked = {"ref": f"results/{'0' * 36}", "access_token": "t", "offset": 2, "max_bytes": 5}
    found = (await mesh.client().call("results.fetch", asked)).json()["result"]
    assert base64.b64decode(found["content"]) == b"cdefg"
    assert (found["offset"], found["size_bytes"]) == (2, 26)


@pytest.mark.parametrize("offset", [2**63, 2**64 - 1, 1e300])
async def test_a_place_that_no_result_has_is_a_wrong_parameter(mesh: Any, offset: float) -> None:
    asked = {"ref": f"results/{'0' * 36}", "access_token": "t", "offset": offset}
    error = (await mesh.client().call("results.fetch", asked)).json()["error"]
    assert error["data"]["reason"] == "INVALID_PARAMS"
    assert [violation["path"] for violation in error["data"]["violations"]] == ["/offset"]


async def test_the_description_names_every_method_and_its_parameters(mesh: Any) -> None:
    document = (await mesh.client(token="").call("rpc.discover")).json()["result"]
    methods = {m["name"]: m for m in document["methods"]}
    assert set(methods) == set(POLICY)
    assert [p["name"] for p in methods["tools.resolve"]["params"]] == ["tool", "version"]


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
