"""HTTP endpoints as tools, against a real server: good answers, and every kind of bad one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from ipaddress import ip_network
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import SystemClock
from libs.common.secret_store.secret import Binding
from libs.common.telemetry.log import Log
from libs.common.url_template import parse_url_template
from services.executor.adapters.runners.http.client import HttpClient
from services.executor.adapters.runners.http.connections import HttpConnections
from services.executor.adapters.runners.http.runner import HttpRunner
from services.executor.adapters.runners.worker.frames import MAX_VALUES
from services.executor.domain.http.endpoint import HttpEndpoint, HttpParameter, ParameterLocation, SecretUse
from services.executor.domain.resilience.circuit import CircuitConfig
from services.executor.domain.resilience.retry import RetryPolicy
from services.executor.domain.run import RunRequest, RunResult
from services.executor.domain.scheduling.heavy_work import HeavyWork
from services.executor.domain.tool import Access, Confinement, Effect, Mutation, Tool
from services.executor.domain.validation_cost import INLINE_BYTES
from services.executor.tests.adapters.runners.http.services import (
    MemorySecrets,
    OwnCircuits,
    Reply,
    Service,
    answer,
    endless,
    never,
    raw,
)
from services.executor.tests.held_thread import offloaded
from services.executor.tests.memory_channel import MemoryChannel
from services.executor.tests.samples import a_tool

LOOPBACK = (ip_network("127.0.0.0/8"),)
LIMIT = 4 << 20
FAST = RetryPolicy(max_attempts=3, longest_delay=0.01)


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with Service().listening() as listening:
        yield listening


class Caller:
    """Runs tools of one service."""

    def __init__(self, service: Service, secrets: MemorySecrets) -> None:
        self.service, self.secrets = service, secrets
        self.circuits = OwnCircuits()
        self.heavy_work = HeavyWork(threads=1)
        self.runner = HttpRunner(
            LOOPBACK, secrets, self.circuits, SystemClock(), Log("executor"), self.heavy_work, output_bytes=LIMIT
        )

    def tool(
        self, method: str = "GET", path: str = "/orders/{id}", *, retry: RetryPolicy | None = None, **more: Any
    ) -> Tool:
        url = parse_url_template(f"http://127.0.0.1:{self.service.port}{path}")
        hosts = more.pop("hosts", ("127.0.0.1",))
        ports = more.pop("ports", (self.service.port,))
        return replace(
            a_tool(runner="http", entry_point=""),
            http=HttpEndpoint(method, url, **more),
            retry=retry,
            confinement=Confinement(access=Access.NETWORK, hosts=hosts, ports=ports),
        )

    async def run(
        self, tool: Tool, seconds: float = 60.0, key: str = "", tenant: str = "acme", **arguments: Any
    ) -> RunResult:
        work = RunRequest("i1", {"id": "7", **arguments}, seconds, tenant=tenant, idempotency_key=key)
        return await self.runner.run(tool, work)

    async def failure(
        self, tool: Tool, seconds: float = 60.0, key: str = "", tenant: str = "acme", **arguments: Any
    ) -> MeshError:
        with pytest.raises(MeshError) as caught:
            await self.run(tool, seconds, key, tenant, **arguments)
        return caught.value


@pytest.fixture
async def caller(service: Service) -> AsyncIterator[Caller]:
    caller = Caller(service, MemorySecrets(crm_key="s3cr3t-value"))
    yield caller
    await caller.runner.close()


async def test_a_call_is_one_request_and_the_answer_is_the_result(caller: Caller, service: Service) -> None:
    service.replies = [answer(b'{"n":9007199254740993}')]
    tool = caller.tool(
        "POST", parameters=(HttpParameter("tag", ParameterLocation.QUERY, "tag"),), idempotency_header="Idempotency-Key"
    )
    assert (await caller.run(tool, key="k1", tag=["a", "b"], note="x")).value == {"n": 9007199254740993}
    [request] = service.requests
    assert request.line == "POST /orders/7?tag=a&tag=b HTTP/1.1"
    assert request.body == b'{"note":"x"}'
    assert request.headers["idempotency-key"] == "k1"
    assert request.headers["host"] == f"127.0.0.1:{service.port}"


async def test_connections_are_reused(caller: Caller, service: Service) -> None:
    for _ in range(3):
        await caller.run(caller.tool())
    assert (len(service.requests), service.connections) == (3, 1)


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        (raw(b"HTTP/1.1 204 No Content\r\n\r\n"), None),
        (answer(b"hello", "200 OK", "text/plain; charset=utf-8"), "hello"),
        (answer(b"[1]", "201 Created", "application/problem+json"), [1]),
    ],
)
async def test_an_answer_may_be_empty_or_a_text(caller: Caller, service: Service, reply: Reply, value: Any) -> None:
    service.replies = [reply]
    assert (await caller.run(caller.tool())).value == value


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (answer(b"{}", "500 Internal Server Error"), Reason.EXTERNAL_UNAVAILABLE),
        (answer(b"{}", "503 Service Unavailable"), Reason.EXTERNAL_UNAVAILABLE),
        (answer(b"{}", "429 Too Many Requests"), Reason.EXTERNAL_RATE_LIMITED),
        (answer(b"{}", "404 Not Found"), Reason.EXECUTION_FAILED),
        (answer(b"{}", "401 Unauthorized"), Reason.EXECUTION_FAILED),
        (answer(b"x", "200 OK", "image/png"), Reason.RESULT_INVALID),
        (answer(b"not json"), Reason.RESULT_INVALID),
        (answer(b'{"a":1,"a":2}'), Reason.RESULT_INVALID),
        (answer(b"{}", "200 OK", "application/json", "content-encoding: gzip"), Reason.RESULT_INVALID),
        (answer(b'"' + b"x" * LIMIT + b'"'), Reason.RESULT_TOO_LARGE),
        (endless, Reason.RESULT_TOO_LARGE),
        (raw(b"GARBAGE\r\n\r\n"), Reason.EXTERNAL_UNAVAILABLE),
        (raw(b""), Reason.EXTERNAL_UNAVAILABLE),
        (raw(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"), Reason.EXTERNAL_UNAVAILABLE),
    ],
)
async def test_every_bad_answer_has_its_reason(caller: Caller, service: Service, reply: Reply, reason: Reason) -> None:
    service.replies = [reply]
    assert (await caller.failure(caller.tool())).reason is reason
    assert len(service.requests) == 1


async def test_a_large_answer_is_parsed_beside_the_event_loop(caller: Caller, service: Service) -> None:
    text = "x" * (INLINE_BYTES + 1)
    service.replies = [answer(f'["{text}"]'.encode())]
    result = await offloaded(caller.heavy_work, caller.run(caller.tool()))
    assert result.value == [text]


async def test_an_answer_of_very_many_values_is_refused(caller: Caller, service: Service) -> None:
    service.replies = [answer(b"[" + b"0," * MAX_VALUES + b"0]")]
    tool = replace(caller.tool(), max_result_bytes=LIMIT)
    assert (await caller.failure(tool)).reason is Reason.RESULT_TOO_LARGE


async def test_a_service_that_hangs_is_left_in_time(caller: Caller, service: Service) -> None:
    service.replies = [never]
    error = await caller.failure(caller.tool("POST"), seconds=0.5)
    assert (error.reason, error.metadata["effect"]) == (Reason.EXTERNAL_TIMEOUT, "unknown")
    await asyncio.wait_for(service.left.wait(), 60)


async def test_a_canceled_call_closes_its_connection(caller: Caller, service: Service) -> None:
    service.replies = [never]
    task = asyncio.create_task(caller.run(caller.tool()))
    await asyncio.wait_for(service.asked.wait(), 60)
    task.cancel()
    await asyncio.wait({task})
    await asyncio.wait_for(service.left.wait(), 60)


async def test_a_canceled_job_ends_its_request(caller: Caller, service: Service) -> None:
    service.replies = [never]
    channel = MemoryChannel()
    work = RunRequest("i1", {"id": "7"}, 60.0, channel=channel)
    task = asyncio.create_task(caller.runner.run(caller.tool(), work))
    await asyncio.wait_for(service.asked.wait(), 60)
    channel.canceled.set_result("enough")
    with pytest.raises(MeshError) as caught:
        await task
    assert caught.value.reason is Reason.INVOCATION_CANCELED
    await asyncio.wait_for(service.left.wait(), 60)


async def test_a_preview_sends_nothing(caller: Caller, service: Service) -> None:
    tool = replace(caller.tool("DELETE"), effects=(Effect("orders/*", "delete"),), mutation=Mutation.WRITE_IRREVERSIBLE)
    result = await caller.runner.run(tool, RunRequest("i1", {"id": "7"}, 60.0, preview=True))
    assert result.forecast is not None
    assert result.forecast.changes == (Effect("orders/*", "delete"),)
    assert f"DELETE http://127.0.0.1:{service.port}/orders/7" in result.forecast.impact
    assert (service.requests, service.connections) == ([], 0)


# Retries.


@pytest.mark.parametrize(
    ("method", "header", "key", "sent"),
    [
        ("GET", "", "", 3),
        ("PUT", "", "", 3),
        ("POST", "", "k", 1),
        ("POST", "Idempotency-Key", "", 1),
        ("POST", "Idempotency-Key", "k", 3),
        ("PATCH", "", "k", 1),
    ],
)
@pytest.mark.parametrize("reply", [answer(b"{}", "503 Unavailable"), raw(b"")], ids=["503", "hangs up"])
async def test_only_a_repeatable_request_is_sent_again(
    caller: Caller, service: Service, method: str, header: str, key: str, sent: int, reply: Reply
) -> None:
    service.replies = [reply]
    tool = caller.tool(method, retry=FAST, idempotency_header=header)
    assert (await caller.failure(tool, key=key)).reason is Reason.EXTERNAL_UNAVAILABLE
    assert len(service.requests) == sent
    assert {request.headers.get("idempotency-key", "") for request in service.requests} == {key if header else ""}


async def test_a_retry_that_succeeds_is_a_success(caller: Caller, service: Service) -> None:
    service.replies = [raw(b""), answer(b"{}", "500 Oops"), answer(b'{"ok":true}')]
    assert (await caller.run(caller.tool(retry=FAST))).value == {"ok": True}
    assert len(service.requests) == 3


async def test_the_failures_of_one_tenant_do_not_use_up_the_retries_of_another(
    caller: Caller, service: Service
) -> None:
    # Says nothing about the health of the service, so that no circuit opens.
    service.replies = [answer(b"{}", "429 Too Many Requests")]
    tool = caller.tool(retry=FAST)
    sent = -FAST.max_attempts
    while len(service.requests) - sent > 1:
        sent = len(service.requests)
        await caller.failure(tool, tenant="loud")
    sent = len(service.requests)
    await caller.failure(tool, tenant="quiet")
    assert len(service.requests) - sent == FAST.max_attempts


async def test_a_request_that_never_left_may_be_sent_again_whatever_its_method(
    caller: Caller, service: Service
) -> None:
    tool = caller.tool("POST", retry=FAST)
    with_closed_port = replace(tool, http=replace(tool.http, url=parse_url_template("http://127.0.0.1:1/x")))  # type: ignore[type-var]
    with_closed_port = replace(with_closed_port, confinement=replace(tool.confinement, ports=(1,)))
    error = await caller.failure(with_closed_port)
    assert (error.reason, error.metadata["effect"]) == (Reason.EXTERNAL_UNAVAILABLE, "none")


async def test_no_status_is_retried_that_the_policy_does_not_name(caller: Caller, service: Service) -> None:
    service.replies = [answer(b"{}", "502 Bad Gateway")]
    await caller.failure(caller.tool(retry=replace(FAST, statuses=frozenset({503}))))
    assert len(service.requests) == 1


async def test_a_delay_that_the_service_asks_for_ends_the_call_if_it_is_too_long(
    caller: Caller, service: Service
) -> None:
    service.replies = [answer(b"{}", "429 Slow Down", "application/json", "retry-after: 3600")]
    error = await caller.failure(caller.tool(retry=FAST))
    assert (error.reason, error.retry_after) == (Reason.EXTERNAL_RATE_LIMITED, 3600.0)
    assert len(service.requests) == 1


async def test_a_failed_write_without_an_answer_has_an_unknown_effect(caller: Caller, service: Service) -> None:
    for reply, effect in [
        (raw(b""), "unknown"),
        (answer(b"", "502 Bad Gateway"), "unknown"),
        (answer(b"", "503 Unavailable"), "none"),
        (answer(b"", "429 Slow Down"), "none"),
    ]:
        service.replies = [reply]
        assert (await caller.failure(caller.tool("POST"))).metadata["effect"] == effect


# Where a request may go.


def with_secret(
    place: ParameterLocation = ParameterLocation.HEADER, name: str = "Authorization", prefix: str = "Bearer "
) -> dict[str, Any]:
    return {"secrets": (SecretUse("crm_key", place, name, prefix),)}


async def test_a_redirect_is_followed_by_reading_requests_within_the_policy(caller: Caller, service: Service) -> None:
    here = f"http://127.0.0.1:{service.port}"
    service.replies = [answer(b"", "302 Found", "text/plain", f"location: {here}/b?c=1"), answer(b'{"at":"b"}')]
    assert (await caller.run(caller.tool(**with_secret()))).value == {"at": "b"}
    assert [request.line for request in service.requests] == ["GET /orders/7 HTTP/1.1", "GET /b?c=1 HTTP/1.1"]
    assert service.requests[1].headers["authorization"] == "Bearer s3cr3t-value"


async def test_a_redirect_to_another_origin_carries_no_secret(caller: Caller, service: Service) -> None:
    async with Service().listening() as other:
        service.replies = [answer(b"", "302 Found", "text/plain", f"location: http://127.0.0.1:{other.port}/b")]
        await caller.run(caller.tool(ports=(service.port, other.port), **with_secret()))
        assert "authorization" not in other.requests[0].headers


@pytest.mark.parametrize(
    "location", ["http://localhost:{}/", "http://169.254.169.254/", "http://127.0.0.1:1/", "ftp://x/"]
)
async def test_a_redirect_elsewhere_is_refused(caller: Caller, service: Service, location: str) -> None:
    service.replies = [answer(b"", "302 Found", "text/plain", f"location: {location.format(service.port)}")]
    error = await caller.failure(caller.tool())
    assert error.reason in (Reason.NETWORK_POLICY_VIOLATION, Reason.RESULT_INVALID)
    assert len(service.requests) == 1


async def test_endless_redirects_end_and_a_write_follows_none(caller: Caller, service: Service) -> None:
    service.replies = [answer(b"", "307 Temporary Redirect", "text/plain", "location: /again")]
    assert (await caller.failure(caller.tool())).reason is Reason.RESULT_INVALID
    assert len(service.requests) == 4
    assert (await caller.failure(caller.tool("POST"))).reason is Reason.EXECUTION_FAILED
    assert len(service.requests) == 5


async def test_a_host_outside_the_policy_cannot_run(caller: Caller) -> None:
    tool = caller.tool(hosts=("api.example.com",))
    assert caller.runner.sandbox_for(tool) is None
    assert (await caller.failure(tool)).reason is Reason.TOOL_UNAVAILABLE
    assert (caller.runner.sandbox_for(caller.tool()) or "").startswith("remote http://127.0.0.1")


@pytest.mark.parametrize(
    ("addresses", "internal", "scheme"),
    [
        (["127.0.0.1"], (), "http"),
        (["10.0.0.1"], (), "https"),
        (["169.254.169.254"], (ip_network("169.254.0.0/16"),), "http"),
        (["127.0.0.1", "10.9.9.9"], LOOPBACK, "http"),
        (["93.184.216.34"], LOOPBACK, "http"),
    ],
    ids=["loopback", "private", "metadata", "one of two", "plain to a public address"],
)
async def test_a_host_with_a_forbidden_address_is_not_connected_to(
    service: Service, addresses: Sequence[str], internal: Any, scheme: str
) -> None:
    async def resolve(host: str) -> Sequence[str]:
        return addresses

    client = HttpClient(
        HttpConnections(internal, resolve=resolve),
        MemorySecrets(),
        OwnCircuits(),
        SystemClock(),
        Log("executor"),
        HeavyWork(),
        output_bytes=LIMIT,
    )
    url = parse_url_template(f"{scheme}://rebound.example:{service.port}/x")
    confinement = Confinement(access=Access.NETWORK, hosts=("rebound.example",), ports=(service.port,))
    tool = replace(a_tool(runner="http"), http=HttpEndpoint("GET", url), confinement=confinement)
    assert tool.http is not None
    with pytest.raises(MeshError) as caught:
        await client.call(tool, tool.http, RunRequest("i1", {}, 60.0))
    assert caught.value.reason is Reason.NETWORK_POLICY_VIOLATION
    assert service.connections == 0
    await client.close()


# Secrets.


async def test_a_secret_travels_in_its_place_and_a_rotated_one_with_the_next_call(
    caller: Caller, service: Service
) -> None:
    await caller.run(caller.tool(**with_secret()))
    caller.secrets.secrets["crm_key"] = MemorySecrets(crm_key="rotated").secrets["crm_key"]
    await caller.run(caller.tool(**with_secret(ParameterLocation.QUERY, "api_key", "")))
    assert service.requests[0].headers["authorization"] == "Bearer s3cr3t-value"
    assert service.requests[1].line == "GET /orders/7?api_key=rotated HTTP/1.1"


async def test_a_secret_that_the_service_repeats_is_removed_from_the_result(caller: Caller, service: Service) -> None:
    service.replies = [answer(b'{"you_sent":"Bearer s3cr3t-value"}')]
    assert (await caller.run(caller.tool(**with_secret()))).value == {"you_sent": "Bearer [redacted]"}


async def test_no_failure_shows_a_secret(caller: Caller, service: Service) -> None:
    tool = caller.tool(**with_secret(ParameterLocation.QUERY, "api_key", ""))
    work = RunRequest("i1", {"id": "7"}, 60.0)
    for reply in (answer(b"s3cr3t-value is wrong", "400 Bad Request", "text/plain"), raw(b"")):
        service.replies = [reply]
        with pytest.raises(MeshError) as caught:
            await caller.runner.run(tool, work)
        assert "s3cr3t" not in f"{caught.value} {caught.value.metadata} {work.notes}"
        assert caught.value.__cause__ is None


@pytest.mark.parametrize("binding", [Binding(("other.example",), ("core",)), Binding(("127.0.0.1",), ("acme",))])
async def test_a_secret_that_is_bound_elsewhere_is_not_sent(caller: Caller, service: Service, binding: Binding) -> None:
    from msgspec.structs import replace as replace_struct

    caller.secrets.secrets["crm_key"] = replace_struct(caller.secrets.secrets["crm_key"], binding=binding)
    error = await caller.failure(caller.tool(**with_secret()))
    assert (error.reason, error.metadata["effect"]) == (Reason.CREDENTIAL_NOT_FOUND, "none")
    assert service.connections == 0


async def test_a_refused_credential_is_said_to_be_one(caller: Caller, service: Service) -> None:
    service.replies = [answer(b"{}", "401 Unauthorized")]
    error = await caller.failure(caller.tool(**with_secret()))
    assert (error.reason, error.metadata["secret"]) == (Reason.CREDENTIAL_EXPIRED, "crm_key")


# The circuit of the service.


def guarded(caller: Caller, method: str = "GET", **more: Any) -> Tool:
    return replace(caller.tool(method, **more), circuit=CircuitConfig(failures=2, failure_rate=0.1, slow_seconds=None))


async def test_a_failing_service_is_left_alone(caller: Caller, service: Service) -> None:
    service.replies = [answer(b"{}", "500 Oops")]
    tool = guarded(caller)
    for _ in range(2):
        assert (await caller.failure(tool)).reason is Reason.EXTERNAL_UNAVAILABLE
    error = await caller.failure(tool)
    assert (error.reason, error.metadata["effect"]) == (Reason.CIRCUIT_OPEN, "none")
    assert error.retry_after is not None
    assert len(service.requests) == 2
    # Another namespace has a circuit of its own.
    assert (await caller.failure(replace(tool, qualified="other.say"))).reason is Reason.EXTERNAL_UNAVAILABLE


@pytest.mark.parametrize(
    ("reply", "opens"),
    [
        (answer(b"{}", "503 Unavailable"), True),
        (raw(b""), True),
        (answer(b"garbage"), True),
        (answer(b"{}", "404 Not Found"), False),
        (answer(b"{}", "429 Slow Down"), False),
    ],
    ids=["503", "hangs up", "garbage", "404", "429"],
)
async def test_only_failures_of_the_service_open_its_circuit(
    caller: Caller, service: Service, reply: Reply, opens: bool
) -> None:
    service.replies = [reply]
    for _ in range(2):
        await caller.failure(guarded(caller))
    assert ((await caller.failure(guarded(caller))).reason is Reason.CIRCUIT_OPEN) is opens


async def test_a_caller_in_a_hurry_opens_no_circuit(caller: Caller, service: Service) -> None:
    service.replies = [never]
    for _ in range(3):
        assert (await caller.failure(guarded(caller), seconds=0.05)).reason is Reason.EXTERNAL_TIMEOUT
    patient = replace(guarded(caller), own_limit=0.05)
    for _ in range(2):
        assert (await caller.failure(patient, seconds=0.05)).reason is Reason.EXTERNAL_TIMEOUT
    assert (await caller.failure(patient, seconds=0.05)).reason is Reason.CIRCUIT_OPEN


async def test_slow_answers_open_it_too(caller: Caller, service: Service) -> None:
    slow = CircuitConfig(failures=2, slow_seconds=0.0)
    for _ in range(2):
        await caller.run(replace(caller.tool(), circuit=slow))
    assert (await caller.failure(replace(caller.tool(), circuit=slow))).reason is Reason.CIRCUIT_OPEN


async def test_an_attempt_of_unknown_effect_is_not_forgotten_by_the_next(caller: Caller, service: Service) -> None:
    service.replies = [raw(b""), answer(b"{}", "503 Unavailable")]
    error = await caller.failure(caller.tool("PUT", retry=FAST))
    assert (len(service.requests), error.metadata["effect"]) == (3, "unknown")
