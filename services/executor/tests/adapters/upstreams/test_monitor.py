"""The monitor of upstreams: calls try a server at once that was silent and answers again, and no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
from prometheus_client import REGISTRY
from toolmesh.registry.v1 import upstream_pb2 as upb
from toolmesh.registry.v1 import upstream_service_pb2 as pb

from services.executor.adapters.upstreams.directory import UpstreamConfig
from services.executor.adapters.upstreams.mcp.secrets import NO_SECRETS
from services.executor.adapters.upstreams.mcp.transport import RateLimitedError, ServerLostError
from services.executor.adapters.upstreams.monitor import UpstreamMonitor
from services.executor.domain.resilience.circuit import CallOutcome, CircuitConfig, CircuitState, Transition
from services.executor.tests.adapters.runners.http.services import OwnCircuits
from services.executor.tests.upstreams import LOG
from services.executor.tests.waiting import until

CONFIG = CircuitConfig(failures=1)
GRPC = upb.UpstreamEndpoint(grpc=upb.GrpcEndpoint(address="orders.example.com:443"))
OPENAPI = upb.UpstreamEndpoint(openapi=upb.OpenApiEndpoint(url="https://api.example.com/openapi.json"))
REMOTE = upb.UpstreamEndpoint(mcp_http=upb.McpHttpEndpoint(url="https://mcp.example.com/mcp"))
OPENED = Transition(CircuitState.CLOSED, CircuitState.OPEN)


class Server:
    """A source that answers while it is well. Stands in for what opens servers, too."""

    poll_seconds = 3600.0

    def __init__(self) -> None:
        self.is_well, self.asked = True, 0

    def open_source(self, _: Any) -> Server:
        return self

    async def discover(self) -> pb.Discovery:
        self.asked += 1
        if not self.is_well:
            raise ServerLostError("away")
        return pb.Discovery(server_name="orders")

    async def close(self) -> None:
        pass


class RemoteServer(Server):
    """An MCP server over HTTP with no tools, whose list may be refused. Stands in for its session, too."""

    server_name = server_version = protocol_version = ""

    def __init__(self) -> None:
        super().__init__()
        self.session = self.transport = self
        self.definitions: dict[str, Any] = {}

    def connect(self, *_: Any) -> RemoteServer:
        return self

    async def read_secrets(self, *_: Any) -> Any:
        return NO_SECRETS

    async def open(self) -> None:
        pass

    async def list_tools(self) -> None:
        self.asked += 1
        raise RateLimitedError(3600.0)


class Directory:
    """Upstreams that the test adds."""

    def listen(self, listener: Any) -> None:
        self.put = listener


class Watched:
    """A monitor of one server, with the circuits of its calls."""

    def __init__(self, server: Server | None = None) -> None:
        self.server, self.circuits, self.reports = server or Server(), OwnCircuits(), list[str]()
        self._directory = Directory()
        channel = grpc.aio.insecure_channel("127.0.0.1:1")
        self.monitor = UpstreamMonitor(
            self._directory,  # type: ignore[arg-type]
            self.server,  # type: ignore[arg-type]
            self.circuits,
            channel,
            "test",
            LOG,
        )
        self.monitor._stub = self  # type: ignore[assignment]

    async def ReportUpstream(self, request: pb.ReportUpstreamRequest, timeout: float) -> None:
        self.reports.append(request.WhichOneof("outcome") or "")

    async def start(self, endpoint: upb.UpstreamEndpoint) -> None:
        self._directory.put("fix", UpstreamConfig("fix", 1, endpoint))
        await until(lambda: self.reports == ["discovery"])

    async def open_circuit(self, name: str) -> None:
        admission = await self.circuits.admit(name, CONFIG)
        await self.circuits.report(name, CONFIG, admission, CallOutcome.FAILURE)

    async def passes(self, name: str) -> bool:
        return (await self.circuits.admit(name, CONFIG)).admitted


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    made = Watched()
    yield made
    await made.monitor.stop()


async def test_calls_try_a_server_at_once_after_it_was_silent_and_answers_again(watched: Watched) -> None:
    await watched.start(GRPC)
    await watched.open_circuit("fix/orders.example.com:443")
    await watched.open_circuit("other/orders.example.com:443")
    watched.server.is_well = False
    # The opened circuit itself has the server checked.
    watched.monitor.follow_circuit("fix/orders.example.com:443", OPENED)
    await until(lambda: "failure" in watched.reports)
    assert not await watched.passes("fix/orders.example.com:443")
    watched.server.is_well = True
    await until(lambda: watched.reports[-1] == "discovery")
    assert await watched.passes("fix/orders.example.com:443")
    assert not await watched.passes("other/orders.example.com:443")


async def test_a_server_that_answers_its_checks_but_fails_its_calls_is_left_alone(watched: Watched) -> None:
    await watched.start(GRPC)
    await watched.open_circuit("fix/orders.example.com:443")
    watched.monitor.follow_circuit("fix/orders.example.com:443", OPENED)
    await until(lambda: watched.reports == ["discovery", "unchanged"])
    assert not await watched.passes("fix/orders.example.com:443")


async def test_a_document_says_nothing_about_its_api(watched: Watched) -> None:
    await watched.open_circuit("fix/https://api.example.com")
    await watched.start(OPENAPI)
    assert not await watched.passes("fix/https://api.example.com")
    watched.monitor.follow_circuit("fix/https://api.example.com", OPENED)
    watched.monitor.request_check("other")
    await asyncio.sleep(0)
    assert not watched.monitor._due["fix"].is_set()


async def test_a_server_that_limits_the_rate_is_not_reported_as_away() -> None:
    watched = Watched(RemoteServer())
    await watched.start(REMOTE)
    watched.monitor.request_check("fix")
    await until(lambda: watched.server.asked)
    await asyncio.sleep(0)
    assert watched.reports == ["discovery"]
    # It is left alone for as long as it says, whatever else happens.
    watched.monitor.request_check("fix")
    await asyncio.sleep(0)
    assert watched.server.asked == 1
    await watched.monitor.stop()


def shown() -> dict[str, float | None]:
    names = ("pending", "ready", "unavailable")
    return {name: REGISTRY.get_sample_value("toolmesh_upstreams", {"state": name}) for name in names}


async def test_the_metric_says_how_many_upstreams_answer(watched: Watched) -> None:
    assert shown() == {"pending": 0, "ready": 0, "unavailable": 0}
    watched.server.is_well = False
    watched._directory.put("fix", UpstreamConfig("fix", 1, GRPC))
    assert shown() == {"pending": 1, "ready": 0, "unavailable": 0}
    await until(lambda: watched.reports[:1] == ["failure"])
    assert shown() == {"pending": 0, "ready": 0, "unavailable": 1}
    watched.server.is_well = True
    await until(lambda: watched.reports[-1] == "discovery")
    assert shown() == {"pending": 0, "ready": 1, "unavailable": 0}
    watched._directory.put("fix", None)
    assert shown() == {"pending": 0, "ready": 0, "unavailable": 0}
