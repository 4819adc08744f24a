"""Operations of WebSocket services as tools: called, streamed, refused, canceled, and attacked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from msgspec.structs import replace
from toolmesh.registry.v1 import upstream_pb2 as upb

from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import SystemClock
from libs.common.secret_store.folders import MountedFolder
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.environment import RunnerEnvironment
from services.executor.adapters.runners.upstreams.websocket import WebSocketRunner
from services.executor.adapters.secrets.folder_secrets import FolderSecrets
from services.executor.adapters.upstreams.directory import UpstreamDirectory
from services.executor.adapters.upstreams.mcp.transport import ServerLostError
from services.executor.adapters.upstreams.servers import Servers
from services.executor.domain.resilience.circuit import CallOutcome
from services.executor.domain.scheduling.heavy_work import HeavyWork
from services.executor.domain.tool import Tool
from services.executor.tests.adapters.runners.upstreams.test_grpc import Recorded
from services.executor.tests.memory_channel import MemoryChannel
from services.executor.tests.packing import MIB, work
from services.executor.tests.samples import a_tool
from tests.harness.servers.websocket_server import WebSocketServer, described, operations_of, websocket_server

LOOPBACK = [ip_network("127.0.0.0/8")]
LOG = Log("test", level="error")


class Upstreams:
    """A runner of WebSocket operations, with the upstream `feed`."""

    def __init__(self, folder: Path, *, internal: Any = LOOPBACK) -> None:
        self._environment = RunnerEnvironment({}, LOG, heavy_work=(heavy_work := HeavyWork(threads=1)))
        self.secrets = folder / "secrets"
        self.secrets.mkdir()
        store = FolderSecrets([MountedFolder(self.secrets)], SystemClock())
        self.servers = Servers(self._environment, internal, store, max_bytes=MIB)
        self.directory = UpstreamDirectory(grpc.aio.insecure_channel("127.0.0.1:1"), LOG)
        self.circuits, self.checks = Recorded(), list[str]()
        self.runner = WebSocketRunner(
            self.directory, self.servers, store, self.circuits, heavy_work, LOG, self.checks.append, output_bytes=MIB
        )

    def tool(self, name: str, url: str, **fields: Any) -> Tool:
        """Connect a service, and return the tool of one of its operations."""
        endpoint = upb.WebSocketEndpoint(**{"url": url, "operations": operations_of(described()), **fields})
        message = upb.Upstream(name="upstreams/feed", generation=1, endpoint=upb.UpstreamEndpoint(websocket=endpoint))
        self.directory._put(message)
        accepted = self.servers.websocket_service(self.directory.all["feed"]).operations[name].digest
        entry_point = json.dumps({"upstream": "feed", "tool": name, "definition": accepted})
        return a_tool(qualified=f"feed.{name}", runner="websocket", entry_point=entry_point)

    def keep_secret(self, value: str, **binding: list[str]) -> list[upb.MetadataSecret]:
        bound = {"hosts": ["127.0.0.1"], "namespaces": ["feed"], **binding}
        (self.secrets / "feed_key.json").write_text(json.dumps(bound))
        (self.secrets / "feed_key").write_text(value)
        return [upb.MetadataSecret(key="authorization", secret="secret://feed_key", prefix="Bearer ")]

    async def value(self, tool: Tool, **arguments: Any) -> Any:
        return (await self.runner.run(tool, work(**arguments))).value

    async def failure(self, tool: Tool, **arguments: Any) -> MeshError:
        with pytest.raises(MeshError) as caught:
            await self.runner.run(tool, work(**arguments))
        return caught.value

    async def close(self) -> None:
        self.servers.close()
        await self._environment.stop()


@pytest.fixture
async def upstreams(tmp_path: Path) -> AsyncIterator[Upstreams]:
    made = Upstreams(tmp_path)
    yield made
    await made.close()


@pytest.fixture
async def server() -> AsyncIterator[WebSocketServer]:
    async with websocket_server() as running:
        yield running


async def test_a_call_gets_its_own_answer_among_others(upstreams: Upstreams, server: WebSocketServer) -> None:
    answer = await upstreams.value(upstreams.tool("sum", server.url), a=2, b=3)
    [sent] = server.seen
    assert answer == {"id": sent["id"], "result": 5}
    assert sent == {"jsonrpc": "2.0", "method": "sum", "params": {"a": 2, "b": 3}, "id": sent["id"]}
    assert upstreams.circuits.outcomes == [CallOutcome.SUCCESS]


async def test_a_stream_is_one_result_with_progress(upstreams: Upstreams, server: WebSocketServer) -> None:
    tool, channel = upstreams.tool("feed", server.url), MemoryChannel()
    result = await upstreams.runner.run(tool, replace(work(count=3), channel=channel))
    assert [message["number"] for message in result.value["messages"]] == [0, 1, 2]
    assert [report.line_count for report in channel.reports] == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "reason", "effect", "outcome"),
    [
        ("refuse", Reason.EXECUTION_FAILED, None, CallOutcome.SUCCESS),
        ("garbage", Reason.RESULT_INVALID, None, CallOutcome.FAILURE),
        ("break_off", Reason.EXTERNAL_UNAVAILABLE, "unknown", CallOutcome.FAILURE),
        ("flood", Reason.RESULT_TOO_LARGE, None, CallOutcome.SUCCESS),
    ],
)
async def test_each_failure_has_its_reason_and_nothing_is_sent_twice(
    upstreams: Upstreams,
    server: WebSocketServer,
    name: str,
    reason: Reason,
    effect: str | None,
    outcome: CallOutcome,
) -> None:
    error = await upstreams.failure(upstreams.tool(name, server.url))
    assert (error.reason, error.metadata.get("effect")) == (reason, effect)
    assert len(server.seen) == 1
    assert upstreams.circuits.outcomes == [outcome]


async def test_a_service_that_hangs_is_left_at_the_end_of_the_time(
    upstreams: Upstreams, server: WebSocketServer
) -> None:
    tool = upstreams.tool("hang", server.url)
    with pytest.raises(MeshError) as caught:
        await upstreams.runner.run(tool, replace(work(), seconds=0.5))
    assert caught.value.reason is Reason.EXTERNAL_TIMEOUT
    await server.closed.wait()


async def test_a_canceled_call_closes_its_connection(upstreams: Upstreams, server: WebSocketServer) -> None:
    running = asyncio.create_task(upstreams.value(upstreams.tool("hang", server.url)))
    await server.asked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await server.closed.wait()
    assert upstreams.circuits.abandoned == 1


async def test_a_secret_is_sent_and_never_comes_back(upstreams: Upstreams, server: WebSocketServer) -> None:
    for value in ("first-value", "rotated-value"):
        tool = upstreams.tool("leak", server.url, secrets=upstreams.keep_secret(value))
        answer = await upstreams.value(tool)
        assert server.authorization[-1] == f"Bearer {value}"
        assert answer["result"] == "Bearer [redacted]"


@pytest.mark.parametrize("binding", [{"hosts": ["elsewhere.example"]}, {"namespaces": ["other"]}])
async def test_a_secret_of_another_host_or_namespace_is_not_sent(
    upstreams: Upstreams, server: WebSocketServer, binding: dict[str, list[str]]
) -> None:
    tool = upstreams.tool("sum", server.url, secrets=upstreams.keep_secret("x-value", **binding))
    assert (await upstreams.failure(tool)).reason is Reason.CREDENTIAL_NOT_FOUND
    assert server.authorization == []


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, Reason.CREDENTIAL_EXPIRED),
        (404, Reason.EXECUTION_FAILED),
        (429, Reason.EXTERNAL_RATE_LIMITED),
        (503, Reason.EXTERNAL_UNAVAILABLE),
    ],
)
async def test_a_refused_opening_request_has_the_reason_of_its_status(
    upstreams: Upstreams, server: WebSocketServer, status: int, reason: Reason
) -> None:
    server.status, server.headers = status, {"Retry-After": "7"}
    error = await upstreams.failure(upstreams.tool("sum", server.url, secrets=upstreams.keep_secret("x-value")))
    assert error.reason is reason
    assert error.retry_after == (7.0 if status in (429, 503) else None)


async def test_a_redirect_is_not_followed(upstreams: Upstreams, server: WebSocketServer) -> None:
    async with websocket_server() as elsewhere:
        server.status, server.headers = 307, {"Location": elsewhere.url}
        error = await upstreams.failure(upstreams.tool("sum", server.url, secrets=upstreams.keep_secret("x-value")))
        assert error.reason is Reason.EXECUTION_FAILED
        assert elsewhere.authorization == []


async def test_other_networks_are_not_reached(tmp_path: Path, server: WebSocketServer) -> None:
    outside = Upstreams(tmp_path, internal=[])
    for url in (server.url, server.url.replace("127.0.0.1", "localhost")):
        tool = outside.tool("sum", url)
        error = await outside.failure(tool)
        assert (error.reason, error.metadata["effect"]) == (Reason.EXTERNAL_UNAVAILABLE, "none")
    assert server.authorization == []
    await outside.close()


async def test_no_argument_replaces_what_the_deployment_fixed(upstreams: Upstreams, server: WebSocketServer) -> None:
    operations = [each | {"arguments_member": ""} for each in described() if each["name"] == "refuse"]
    tool = upstreams.tool("refuse", server.url, operations=operations_of(operations))
    await upstreams.failure(tool, method="sum", id="mine", jsonrpc="1.0")
    assert (server.seen[0]["method"], server.seen[0]["jsonrpc"]) == ("refuse", "2.0")
    assert server.seen[0]["id"] != "mine"


async def test_an_open_circuit_and_a_changed_definition_send_nothing(
    upstreams: Upstreams, server: WebSocketServer
) -> None:
    tool = upstreams.tool("sum", server.url)
    upstreams.circuits.open = True
    assert (await upstreams.failure(tool)).reason is Reason.CIRCUIT_OPEN
    changed = [each | {"description": "Now something else."} for each in described()]
    upstreams.tool("sum", server.url, operations=operations_of(changed))
    assert (await upstreams.failure(tool)).reason is Reason.TOOL_UNAVAILABLE
    assert upstreams.checks == ["feed"]
    assert server.authorization == []


async def test_discovery_opens_a_connection(upstreams: Upstreams, server: WebSocketServer) -> None:
    upstreams.tool("sum", server.url, secrets=upstreams.keep_secret("x-value"))
    source = upstreams.servers.open_source(upstreams.directory.all["feed"])
    discovery = await source.discover()
    assert [tool.native_name for tool in discovery.tools] == [each["name"] for each in described()]
    assert server.authorization == ["Bearer x-value"]
    server.status = 503
    with pytest.raises(ServerLostError):
        await source.discover()
