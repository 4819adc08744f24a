"""No input crashes the protocol, and every answer is valid JSON-RPC 2.0. The peers are fakes behind their stubs."""

from __future__ import annotations

import asyncio
import base64
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, cast

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from toolmesh.authz.v1 import authz_service_pb2 as authz_pb
from toolmesh.common.v1.error_table import ROWS
from toolmesh.executor.v1.executor_service_pb2 import InvokeResponse
from toolmesh.executor.v1.result_envelope_pb2 import ResultEnvelope
from toolmesh.registry.v1 import registry_service_pb2 as registry_pb

from libs.common.errors import MeshError, Reason
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.gateway.authzen.endpoint import EVALUATION, EVALUATIONS_PATH, AuthzenEndpoint
from services.gateway.authzen.evaluate import Evaluate
from services.gateway.contract import METHODS, describe
from services.gateway.domain.rate_limits import RateLimits
from services.gateway.forwarded.methods import handlers as forwarded_handlers
from services.gateway.handlers import Handlers
from services.gateway.mcp.context import CallerReader, ClientFacts
from services.gateway.mcp.dispatch import McpDispatcher
from services.gateway.mcp.http.endpoint import McpEndpoint
from services.gateway.mcp.http.origin_check import OriginCheck
from services.gateway.mcp.http.running import RunningRequests
from services.gateway.mcp.invocations.answer import AnswerQuestion
from services.gateway.mcp.invocations.follow import FollowInvocation
from services.gateway.mcp.invocations.outcome import ShowOutcome
from services.gateway.mcp.invocations.run_job import RunJob
from services.gateway.mcp.invocations.tasks import Tasks
from services.gateway.mcp.lifecycle import Lifecycle, ping
from services.gateway.policy import MCP_POLICY, POLICY
from services.gateway.streaming.streamed_call import StreamedCalls
from services.gateway.transport.call_pipeline import CallPipeline
from services.gateway.transport.disconnect import DisconnectWatcher
from services.gateway.transport.edge_log import EdgeLog
from services.gateway.transport.in_flight import InFlightRequests
from services.gateway.transport.request.dpop_check import DpopCheck
from services.gateway.transport.request.limits import RequestLimits
from services.gateway.transport.router import Router
from services.gateway.transport.rpc import RpcEndpoint
from services.gateway.transport.telemetry import Telemetry

CODES = {row.jsonrpc_code for row in ROWS.values()}


class FakeExecutor:
    """Echoes; fails for a tool called `bad`, breaks for one called `broken`."""

    async def Invoke(self, request: Any) -> Any:
        if request.tool == "bad":
            raise MeshError(Reason.PERMISSION_DENIED)
        if request.tool == "broken":
            raise ZeroDivisionError
        return InvokeResponse(result=ResultEnvelope(structured_content=request.arguments or b"{}"))


class FakeRegistry:
    """Answers every read with something empty."""

    async def ListTools(self, request: Any) -> Any:
        return registry_pb.ListToolsResponse()

    async def GetTool(self, request: Any) -> Any:
        return registry_pb.GetToolResponse()

    async def ResolveTool(self, request: Any) -> Any:
        return registry_pb.ResolveToolResponse()


class AbsentPeer:
    """Is unavailable, whatever is asked."""

    def __getattr__(self, method: str) -> Any:
        async def refuse(request: Any) -> Any:
            raise MeshError(Reason.SERVICE_UNAVAILABLE)

        return refuse


class NoTools:
    """Knows of no tool."""

    def knows(self, tool: Any) -> bool:
        return False


class OneSession:
    """Knows the session `s`."""

    async def open(self, owner: str, client: ClientFacts) -> str:
        return "s"

    async def get(self, owner: str, session: str) -> ClientFacts | None:
        return ClientFacts(elicitation=True) if session == "s" else None

    async def update(self, owner: str, session: str, client: ClientFacts) -> None:
        return

    async def end(self, owner: str, session: str) -> bool:
        return session == "s"

    async def cancel(self, key: str) -> None:
        return


class AbsentChannel:
    """A channel to a peer that is unavailable."""

    def unary_unary(self, path: str, **serializers: Any) -> Any:
        return AbsentPeer().refuse


class FakeAuthz:
    """Denies everything."""

    async def Check(self, request: Any) -> Any:
        return authz_pb.CheckResponse()


async def no_console(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("the console was asked")


async def no_keys() -> bytes:
    raise MeshError(Reason.SERVICE_UNAVAILABLE)


Ask = Callable[..., Awaitable[tuple[int, dict[bytes, bytes], bytes]]]


def _mcp(telemetry: Telemetry, in_flight: InFlightRequests, log: Log) -> McpEndpoint:
    sessions, absent = OneSession(), cast("Any", AbsentPeer())
    dispatcher = McpDispatcher(
        {"ping": ping, "server/discover": Lifecycle(absent).discover}, MCP_POLICY, telemetry, RateLimits(), log
    )
    outcomes, answers, follow = (
        ShowOutcome(absent, absent),
        AnswerQuestion(absent, absent),
        FollowInvocation(absent, log),
    )
    jobs = RunJob(follow, outcomes, answers, Tasks(absent, follow, outcomes, answers))
    parts = (sessions, sessions, RunningRequests(), absent, in_flight, DpopCheck(()), OriginCheck((), ()))
    return McpEndpoint(dispatcher, *parts, jobs, answers, {}, (), EdgeLog(NoTools()), 0.0)


@pytest.fixture
def ask() -> Ask:
    """Return a function that sends one request to the application and returns status, headers and body."""
    log = Log("test", level="error", descriptor=2)
    in_flight = InFlightRequests(10)
    in_flight.serving = True
    executor: Any = FakeExecutor()
    registry: Any = FakeRegistry()
    absent: Any = AbsentPeer()
    handlers = Handlers(executor, registry, absent, absent, absent, absent, describe(METHODS))
    telemetry = Telemetry(log, Tracing())
    channels: Any = defaultdict(AbsentChannel)
    by_method = {**handlers.by_method(), **forwarded_handlers(channels)}
    limits = RequestLimits(CallerReader(), RateLimits())
    calls = CallPipeline(by_method, METHODS, POLICY, Log("t", level="error", descriptor=2), telemetry, limits)
    authz: Any = FakeAuthz()
    evaluate = Evaluate(registry, authz)
    evaluations = {EVALUATION: evaluate.one, EVALUATIONS_PATH: evaluate.many}
    authzen = AuthzenEndpoint(evaluations, in_flight, telemetry, log, DpopCheck(()), 0.0)
    endpoint = RpcEndpoint(calls, StreamedCalls(absent), in_flight, DpopCheck(()), EdgeLog(NoTools()), limits, 0.0)
    app = Router(
        endpoint, authzen, no_console, _mcp(telemetry, in_flight, log), no_console, no_keys, in_flight, log, (), {}, ()
    )

    async def send_request(
        body: bytes, *, headers: list[tuple[bytes, bytes]] | None = None, path: str = "/rpc", method: str = "POST"
    ) -> tuple[int, dict[bytes, bytes], bytes]:
        sent: list[Any] = []
        events = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            return events.pop(0) if events else await asyncio.Event().wait()

        async def send(event: Any) -> None:
            sent.append(event)

        given_headers = [(b"content-type", b"application/json")] if headers is None else headers
        state = {"peer": "edge", "disconnect": DisconnectWatcher()}
        await app({"path": path, "method": method, "headers": given_headers, "state": state}, receive, send)
        assert [event["type"] for event in sent] == ["http.response.start", "http.response.body"]
        return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]

    return send_request


def check_response(answer: Any) -> None:
    """Hold one response against section 5 of the specification."""
    assert isinstance(answer, dict)
    assert answer.get("jsonrpc") == "2.0"
    assert answer.keys() in ({"jsonrpc", "id", "result"}, {"jsonrpc", "id", "error"})
    assert isinstance(answer["id"], str | int | float | None)
    assert not isinstance(answer["id"], bool)
    if "error" in answer:
        assert answer["error"].keys() == {"code", "message", "data"}
        assert answer["error"]["code"] in CODES
        assert isinstance(answer["error"]["message"], str)


def check_body(status: int, body: bytes) -> Any:
    if status == 204:
        assert body == b""
        return None
    answers = orjson.loads(body)
    for answer in answers if isinstance(answers, list) else [answers]:
        check_response(answer)
    return answers


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
names = st.sampled_from([m.name for m in METHODS] + ["rpc.", "tools", ""]) | st.text(max_size=10)
params = st.fixed_dictionaries(
    {},
    optional={
        "tool": st.sampled_from(["echo", "bad", "broken", ""]) | values,
        "arguments": st.dictionaries(st.text(max_size=5), values, max_size=3) | values,
        "timeout_ms": st.integers(-1, 300_001) | values,
        "page_size": st.integers(-1, 1001) | values,
        "tags": st.lists(st.text(max_size=5), max_size=20) | values,
        "other": values,
    },
)
entries = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | values,
        "id": scalars | values,
        "method": names | values,
        "params": params | values,
        "extra": values,
    },
)
good_entries = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "method": names, "params": params}, optional={"id": scalars}
)
messages = values | entries | good_entries | st.lists(entries | good_entries | values, max_size=60)
relaxed = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@relaxed
@given(payload=st.binary(max_size=200))
async def test_any_bytes_are_answered(ask: Ask, payload: bytes) -> None:
    status, _, body = await ask(payload)
    check_body(status, body)


@relaxed
@given(message=messages)
async def test_any_json_is_answered_and_the_answers_match_the_entries(ask: Ask, message: Any) -> None:
    status, _, body = await ask(orjson.dumps(message))
    answers = check_body(status, body)
    if isinstance(message, list) and 0 < len(message) <= 50:
        wanted = [e for e in message if not _is_notification(e)]
        assert [a["id"] for a in answers or []] == [_id_of(e) for e in wanted]


@relaxed
@given(payload=st.binary(max_size=60), message=good_entries, cut=st.integers(0, 200))
async def test_a_damaged_body_is_answered(ask: Ask, payload: bytes, message: Any, cut: int) -> None:
    whole = orjson.dumps(message)
    status, _, body = await ask(whole[:cut] + payload + whole[cut:])
    check_body(status, body)


@relaxed
@given(
    headers=st.lists(
        st.tuples(
            st.sampled_from(
                [
                    b"content-type",
                    b"authorization",
                    b"traceparent",
                    b"tracestate",
                    b"x-deadline-ms",
                    b"x-request-id",
                    b"content-length",
                ]
            ),
            st.binary(max_size=60)
            | st.sampled_from(
                [b"application/json", b"Bearer abc", b"100", b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"]
            ),
        ),
        max_size=8,
    )
)
async def test_any_headers_are_answered(ask: Ask, headers: list[tuple[bytes, bytes]]) -> None:
    payload = b'{"jsonrpc":"2.0","id":1,"method":"rpc.discover"}'
    status, answered, body = await ask(payload, headers=headers)
    check_body(status, body)
    assert len(answered[b"x-trace-id"]) == 32
    assert 0 < len(answered[b"x-request-id"]) <= 128


@pytest.mark.parametrize("path", ["/", "/healthz", "/.well-known/jwks.json", "/rpc/", "//", "/../rpc", ""])
async def test_any_path_is_answered(ask: Ask, path: str) -> None:
    status, _, body = await ask(b"", path=path, method="GET")
    assert status in (200, 404, 503)
    assert orjson.loads(body)


def _is_notification(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and "id" not in entry
        and entry.get("jsonrpc") == "2.0"
        and isinstance(entry.get("method"), str)
        and isinstance(entry.get("params", {}), dict | list)
    )


def _id_of(entry: Any) -> Any:
    given_id = entry.get("id") if isinstance(entry, dict) else None
    usable = given_id is None or (isinstance(given_id, str | int | float) and not isinstance(given_id, bool))
    return given_id if usable else None


sides = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["tool", "user", "x"]) | values,
        "id": st.text(max_size=9) | values,
        "name": values,
    },
)
evaluation_bodies = st.fixed_dictionaries(
    {},
    optional={
        "subject": sides | values,
        "action": st.just({"name": "invoke"}) | sides | values,
        "resource": sides | values,
        "context": values,
        "options": values,
        "evaluations": st.lists(sides | values, max_size=60) | values,
    },
)


@relaxed
@given(
    payload=st.binary(max_size=200) | evaluation_bodies.map(orjson.dumps),
    path=st.sampled_from([EVALUATION, EVALUATIONS_PATH]),
)
async def test_any_evaluation_is_answered(ask: Ask, payload: bytes, path: str) -> None:
    headers = [(b"content-type", b"application/json"), (b"authorization", b"Bearer x")]
    status, _, body = await ask(payload, headers=headers, path=path)
    answer = orjson.loads(body)
    assert status in (200, 400)
    assert status == 400 or not any(one["decision"] for one in answer.get("evaluations", [answer]))


envelopes = st.fixed_dictionaries(
    {},
    optional={
        "io.modelcontextprotocol/protocolVersion": st.sampled_from(["2026-07-28", "2025-11-25", "v9"]) | values,
        "io.modelcontextprotocol/clientCapabilities": st.just({}) | values,
        "dev.toolmesh/timeoutMs": values,
    },
)
mcp_messages = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | values,
        "id": scalars | values,
        "method": st.sampled_from(["ping", "server/discover", "initialize", "notifications/cancelled"]) | values,
        "params": st.fixed_dictionaries({}, optional={"_meta": envelopes | values, "requestId": values}) | values,
        "result": values,
    },
)


@relaxed
@given(
    message=mcp_messages | values,
    version=st.sampled_from([b"", b"2025-11-25", b"2026-07-28", b"2024-11-05", b"v9"]),
    method=st.sampled_from([b"", b"ping", b"server/discover"]),
    verb=st.sampled_from(["POST", "DELETE", "PUT"]),
)
async def test_any_message_of_mcp_is_answered(ask: Ask, message: Any, version: bytes, method: bytes, verb: str) -> None:
    token = jwt_without_signature(sub="did:web:x:alice", exp=9999999999)
    headers = [(b"content-type", b"application/json"), (b"authorization", b"Bearer " + token)]
    headers += [(b"mcp-session-id", b"s"), (b"mcp-protocol-version", version), (b"mcp-method", method)]
    status, _, body = await ask(orjson.dumps(message), headers=[h for h in headers if h[1]], path="/mcp", method=verb)
    assert status in {200, 202, 204, 400, 404, 405}
    assert not body or orjson.loads(body)["jsonrpc"] == "2.0"


def jwt_without_signature(**claims: Any) -> bytes:
    return b".".join(base64.urlsafe_b64encode(orjson.dumps(part)).rstrip(b"=") for part in ({}, claims, {}))
