"""The rates of callers on `/rpc` and `/mcp`: by method, for each subject, and for the calls inside of batches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import orjson
import pytest

from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from libs.common.testing.clock import ManualClock
from services.gateway.contract import METHODS
from services.gateway.domain.rate_limits import BATCHED_CALLS, LISTINGS, SEARCHES, SESSIONS, TOKENS, Rate, RateLimits
from services.gateway.mcp.context import CallerReader
from services.gateway.mcp.dispatch import McpDispatcher
from services.gateway.mcp.http.endpoint import McpEndpoint
from services.gateway.mcp.http.origin_check import OriginCheck
from services.gateway.mcp.http.running import RunningRequests
from services.gateway.policy import MCP_POLICY, POLICY
from services.gateway.tests.transport.test_any_input import AbsentPeer, NoTools, OneSession
from services.gateway.transport.call_pipeline import CallPipeline
from services.gateway.transport.disconnect import DisconnectWatcher
from services.gateway.transport.edge_log import EdgeLog
from services.gateway.transport.in_flight import InFlightRequests
from services.gateway.transport.request.dpop_check import DpopCheck
from services.gateway.transport.request.limits import RequestLimits
from services.gateway.transport.rpc import RpcEndpoint
from services.gateway.transport.telemetry import Telemetry

Send = Callable[..., Awaitable[tuple[int, dict[bytes, bytes], Any]]]
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
LISTED: dict[str, Any] = {}
SEARCH = {"name": "search-tools", "arguments": {"query": "time"}}


async def nothing(*request: Any) -> dict[str, Any]:
    return {}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def send(clock: ManualClock, signer: Any) -> Send:
    """Return a function that sends a body for a subject, and returns status, headers and body."""
    log, in_flight, absent = Log("t", level="error", descriptor=2), InFlightRequests(10), cast("Any", AbsentPeer())
    in_flight.serving = True
    rates, telemetry, edge_log = RateLimits(clock.monotonic), Telemetry(log, Tracing()), EdgeLog(NoTools())
    limits, dpop_check = RequestLimits(CallerReader(), rates), DpopCheck(())
    calls = CallPipeline({method.name: nothing for method in METHODS}, METHODS, POLICY, log, telemetry, limits)
    rpc = RpcEndpoint(calls, absent, in_flight, dpop_check, edge_log, limits, 0.0)
    dispatcher = McpDispatcher(dict.fromkeys(MCP_POLICY, nothing), MCP_POLICY, telemetry, rates, log)
    parts = (OneSession(), OneSession(), RunningRequests(), absent, in_flight, dpop_check, OriginCheck((), ()))
    mcp = McpEndpoint(dispatcher, *parts, absent, absent, {}, (), edge_log, 0.0)
    tokens = {subject: signer.mint(subject).encode() for subject in ("greedy", "modest")}

    async def send_request(path: str, body: Any, subject: str = "greedy") -> tuple[int, dict[bytes, bytes], Any]:
        sent: list[Any] = []
        events = [{"type": "http.request", "body": orjson.dumps(body), "more_body": False}]

        async def receive() -> Any:
            return events.pop(0) if events else await asyncio.Event().wait()

        async def collect(event: Any) -> None:
            sent.append(event)

        headers = [
            (b"content-type", b"application/json"),
            (b"accept", b"application/json, text/event-stream"),
            (b"authorization", b"Bearer " + tokens[subject]),
            (b"mcp-session-id", b"s"),
            (b"mcp-protocol-version", b"2025-11-25"),
        ]
        state = {"peer": "edge", "disconnect": DisconnectWatcher()}
        app = rpc if path == "/rpc" else mcp
        await app({"path": path, "method": "POST", "headers": headers, "state": state}, receive, collect)
        return sent[0]["status"], dict(sent[0]["headers"]), orjson.loads(sent[1]["body"])

    return send_request


def call(method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


@pytest.mark.parametrize(
    ("path", "body", "rate"),
    [
        ("/rpc", call("tools.search", {"query": "time"}), SEARCHES),
        ("/rpc", call("tools.list", {}), LISTINGS),
        ("/rpc", call("tokens.narrow", {"tool": "core.echo", "ttl_ms": 1000}), TOKENS),
        ("/mcp", call("tools/list", {}), LISTINGS),
        ("/mcp", call("initialize", HELLO), SESSIONS),
        ("/mcp", call("tools/call", SEARCH), SEARCHES),
    ],
    ids=lambda value: value["method"] if isinstance(value, dict) else str(value[0]),
)
async def test_a_method_has_a_rate_for_each_subject(
    clock: ManualClock, send: Send, path: str, body: Any, rate: Rate
) -> None:
    for _ in range(rate.burst):
        status, _, answer = await send(path, body)
        assert status == 200, answer
    status, headers, answer = await send(path, body)
    assert (status, headers[b"retry-after"], answer["id"]) == (429, b"1", 1)
    refused = answer["error"]["data"]
    assert (refused["reason"], refused["retryable"]) == ("RATE_LIMITED", True)
    assert refused["metadata"]["limit"] == rate.name
    assert 0 < refused["retry_after_ms"] <= 1000 / rate.per_second + 1
    # Neither another subject nor another method waits for it.
    assert (await send(path, body, "modest"))[0] == 200
    assert (await send("/mcp", call("ping", {})))[0] == 200
    clock.advance(1 / rate.per_second)
    assert (await send(path, body))[0] == 200


async def test_the_calls_of_batches_and_groups_are_counted_one_by_one(clock: ManualClock, send: Send) -> None:
    batch = [{**call("tools.invoke", {"tool": "core.echo"}), "id": number} for number in range(50)]
    group = call("tools.invoke_group", {"calls": [{"tool": "core.echo"}] * 50})
    for _ in range(BATCHED_CALLS.burst // 100):
        assert (await send("/rpc", batch))[0] == 200
        assert (await send("/rpc", group))[0] == 200
    status, headers, answers = await send("/rpc", batch)
    assert (status, headers[b"retry-after"]) == (429, b"1")
    assert [(each["id"], each["error"]["data"]["reason"]) for each in answers] == [
        (number, "RATE_LIMITED") for number in range(50)
    ]
    assert (await send("/rpc", group))[0] == 429
    # A single call is counted by the edge.
    assert (await send("/rpc", batch[0]))[0] == 200
    assert (await send("/rpc", batch, "modest"))[0] == 200
