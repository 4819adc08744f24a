"""Endpoints that stand in for one that cannot be reached, each with a circuit of its own."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as replace_struct

from libs.common.errors import Reason
from libs.common.secret_store.secret import Binding
from libs.common.url_template import parse_url_template
from services.executor.domain.http.endpoint import ParameterLocation, SecretUse
from services.executor.domain.resilience.circuit import CircuitConfig, CircuitState
from services.executor.domain.tool import Tool
from services.executor.tests.adapters.runners.http.services import MemorySecrets, Service, answer
from services.executor.tests.adapters.runners.http.test_runner import Caller


@pytest.fixture
async def first() -> AsyncIterator[Service]:
    async with Service().listening() as listening:
        yield listening


@pytest.fixture
async def second() -> AsyncIterator[Service]:
    async with Service().listening() as listening:
        listening.replies = [answer(b'{"from":"second"}')]
        yield listening


@pytest.fixture
async def caller(first: Service) -> AsyncIterator[Caller]:
    caller = Caller(first, MemorySecrets(crm_key="s3cr3t-value"))
    yield caller
    await caller.runner.close()


def closed_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


def tool_at(caller: Caller, *ports: int, method: str = "GET", **more: Any) -> Tool:
    """Return a tool whose endpoint is at the first port, and then at the others."""
    url, *others = (parse_url_template(f"http://127.0.0.1:{port}/orders/{{id}}") for port in ports)
    tool = caller.tool(method, ports=ports, **more)
    assert tool.http is not None
    circuit = CircuitConfig(failures=2, failure_rate=0.1)
    return replace(tool, http=replace(tool.http, url=url, failover=tuple(others)), circuit=circuit)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_the_next_endpoint_is_called_if_no_connection_can_be_made(
    caller: Caller, second: Service, method: str
) -> None:
    tool = tool_at(caller, closed_port(), second.port, method=method)
    assert (await caller.run(tool)).value == {"from": "second"}
    assert [request.line for request in second.requests] == [f"{method} /orders/7 HTTP/1.1"]


async def test_an_open_circuit_sends_calls_to_the_next_endpoint_and_leaves_its_circuit_closed(
    caller: Caller, first: Service, second: Service
) -> None:
    first.replies = [answer(b"{}", "500 Oops")]
    tool = tool_at(caller, first.port, second.port)
    for _ in range(2):
        assert (await caller.failure(tool)).reason is Reason.EXTERNAL_UNAVAILABLE
    assert (await caller.run(tool)).value == {"from": "second"}
    assert (len(first.requests), len(second.requests)) == (2, 1)
    states = {name.rpartition(":")[2]: circuit.state for name, circuit in caller.circuits.circuits.items()}
    assert states == {str(first.port): CircuitState.OPEN, str(second.port): CircuitState.CLOSED}


async def test_a_request_that_was_sent_is_not_sent_to_the_next_endpoint(
    caller: Caller, first: Service, second: Service
) -> None:
    first.replies = [answer(b"{}", "500 Oops")]
    assert (await caller.failure(tool_at(caller, first.port, second.port, method="POST"))).metadata[
        "effect"
    ] == "unknown"
    assert second.connections == 0


async def test_the_last_endpoint_says_why_the_call_failed(caller: Caller) -> None:
    error = await caller.failure(tool_at(caller, closed_port(), closed_port()))
    assert (error.reason, error.metadata["effect"]) == (Reason.EXTERNAL_UNAVAILABLE, "none")


async def test_an_endpoint_outside_the_network_policy_makes_the_tool_unavailable(
    caller: Caller, first: Service, second: Service
) -> None:
    tool = tool_at(caller, first.port, second.port)
    narrow = replace(tool, confinement=replace(tool.confinement, ports=(first.port,)))
    assert (await caller.failure(narrow)).reason is Reason.TOOL_UNAVAILABLE


async def test_a_secret_must_be_bound_to_the_hosts_of_all_endpoints(caller: Caller, first: Service) -> None:
    use = SecretUse("crm_key", ParameterLocation.HEADER, "Authorization", "Bearer ")
    tool = tool_at(caller, first.port, secrets=(use,))
    assert tool.http is not None
    other = parse_url_template(f"http://localhost:{first.port}/orders/{{id}}")
    tool = replace(
        tool,
        http=replace(tool.http, failover=(other,)),
        confinement=replace(tool.confinement, hosts=("127.0.0.1", "localhost")),
    )
    assert (await caller.failure(tool)).reason is Reason.CREDENTIAL_NOT_FOUND
    assert first.connections == 0
    both = Binding(("127.0.0.1", "localhost"), ("core",))
    caller.secrets.secrets["crm_key"] = replace_struct(caller.secrets.secrets["crm_key"], binding=both)
    await caller.run(tool)
    assert first.requests[0].headers["authorization"] == "Bearer s3cr3t-value"
