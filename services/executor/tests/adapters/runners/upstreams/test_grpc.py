"""Methods of gRPC servers as tools: found by reflection or descriptors, called, canceled, failed and changed."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf import descriptor_pb2 as dpb
from msgspec.structs import replace
from toolmesh.registry.v1 import upstream_pb2 as upb

from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import SystemClock
from libs.common.secret_store.folders import MountedFolder
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.environment import RunnerEnvironment
from services.executor.adapters.runners.upstreams.grpc import GrpcRunner
from services.executor.adapters.secrets.folder_secrets import FolderSecrets
from services.executor.adapters.upstreams.directory import UpstreamConfig, UpstreamDirectory
from services.executor.adapters.upstreams.mcp.transport import ServerLostError
from services.executor.adapters.upstreams.servers import Servers
from services.executor.domain.resilience.circuit import Admission, CallOutcome, CircuitConfig
from services.executor.domain.scheduling.heavy_work import HeavyWork
from services.executor.domain.tool import Tool
from services.executor.tests.memory_channel import MemoryChannel
from services.executor.tests.packing import MIB, work
from services.executor.tests.samples import a_tool
from tests.harness.servers.grpc_server import Orders, file_descriptor, orders_process, orders_server

LOOPBACK = [ip_network("127.0.0.0/8")]
LOG = Log("test", level="error")


class Recorded:
    """Circuits that let everything pass unless they are open, and keep what is reported."""

    def __init__(self) -> None:
        self.outcomes: list[CallOutcome] = []
        self.abandoned = 0
        self.limits: dict[str, float] = {}
        self.open = False

    async def limit(self, name: str, party: str, seconds: float) -> None:
        self.limits[party] = seconds

    async def half_open(self, namespace: str, config: CircuitConfig) -> None:
        self.open = False

    async def admit(self, name: str, config: CircuitConfig, party: str = "") -> Admission:
        return Admission(admitted=not self.open, wait=7.0)

    async def report(self, name: str, config: CircuitConfig, admission: Admission, outcome: CallOutcome) -> None:
        self.outcomes.append(outcome)

    def abandon(
        self, name: str, config: CircuitConfig, admission: Admission, outcome: CallOutcome = CallOutcome.NONE
    ) -> None:
        self.abandoned += 1
        self.outcomes += [outcome] if outcome is not CallOutcome.NONE else []


class Upstreams:
    """A runner of gRPC methods, with the upstream `shop`."""

    def __init__(self, folder: Path, *, internal: Any = LOOPBACK) -> None:
        self.heavy_work = HeavyWork(threads=1)
        self._environment = RunnerEnvironment({}, LOG, heavy_work=self.heavy_work)
        self.secrets = folder / "secrets"
        self.secrets.mkdir()
        store = FolderSecrets([MountedFolder(self.secrets)], SystemClock())
        self.servers = Servers(self._environment, internal, store, max_bytes=MIB)
        self._directory = UpstreamDirectory(grpc.aio.insecure_channel("127.0.0.1:1"), LOG)
        self.circuits, self.checks = Recorded(), list[str]()
        self.runner = GrpcRunner(
            self._directory,
            self.servers,
            store,
            self.circuits,
            self.heavy_work,
            LOG,
            self.checks.append,
            output_bytes=MIB,
        )

    def add(self, port: int, **fields: Any) -> UpstreamConfig:
        endpoint = upb.GrpcEndpoint(**{"address": f"127.0.0.1:{port}", "plaintext": True, **fields})
        message = upb.Upstream(name="upstreams/shop", generation=1, endpoint=upb.UpstreamEndpoint(grpc=endpoint))
        self._directory._put(message)
        return self._directory.all["shop"]

    async def tool(self, method: str, port: int, **fields: Any) -> Tool:
        """Return the tool of a method as it is offered now."""
        config = self.add(port, **fields)
        server = self.servers.grpc_server(config)
        name = f"shop.v1.Orders/{method}"
        accepted = (await server.recent_description()).digests[name]
        await server.close()
        entry_point = json.dumps({"upstream": "shop", "tool": name, "definition": accepted})
        return a_tool(qualified=f"shop.{method.lower()}", runner="grpc", entry_point=entry_point)

    async def value(self, tool: Tool, **arguments: Any) -> Any:
        return (await self.runner.run(tool, work(**arguments))).value

    async def failure(self, tool: Tool, **arguments: Any) -> MeshError:
        with pytest.raises(MeshError) as caught:
            await self.runner.run(tool, work(**arguments))
        return caught.value

    async def close(self) -> None:
        await self.runner.close()
        self.servers.close()
        await self._environment.stop()


@pytest.fixture
async def upstreams(tmp_path: Path) -> AsyncIterator[Upstreams]:
    made = Upstreams(tmp_path)
    yield made
    await made.close()


@pytest.fixture
async def server() -> AsyncIterator[tuple[Orders, int]]:
    async with orders_server() as running:
        yield running


Server = tuple[Orders, int]


async def test_reflection_describes_every_method(upstreams: Upstreams, server: Server) -> None:
    source = upstreams.servers.open_source(upstreams.add(server[1]))
    found = await source.discover()
    # The server has v1alpha only.
    assert found.protocol_version == "gRPC, reflection v1alpha"
    definitions = {tool.native_name: json.loads(tool.definition) for tool in found.tools}
    get = definitions["shop.v1.Orders/Get"]
    assert (get["idempotency"], get["server_streaming"]) == ("no_side_effects", False)
    assert definitions["shop.v1.Orders/List"]["server_streaming"]
    assert definitions["shop.v1.Orders/Upload"]["client_streaming"]
    assert get["input"]["properties"]["kind"] == {"enum": ["KIND_NONE", "KIND_GIFT"]}
    assert get["input"]["properties"]["next"] == {"$ref": "#/$defs/shop.v1.Order"}
    assert get["input"]["additionalProperties"] is False
    await source.close()


async def test_a_version_of_reflection_that_a_server_lacks_is_never_an_error(upstreams: Upstreams) -> None:
    with orders_process() as port:
        source = upstreams.servers.open_source(upstreams.add(port))
        for _ in range(100):
            assert (await source.discover()).protocol_version == "gRPC, reflection v1alpha"
        await source.close()


async def test_methods_are_selected(upstreams: Upstreams, server: Server) -> None:
    some = upstreams.servers.open_source(upstreams.add(server[1], methods=["*/Get", "*/List"]))
    assert len((await some.discover()).tools) == 2
    await some.close()
    none = upstreams.servers.open_source(upstreams.add(server[1], methods=["other.*"]))
    with pytest.raises(ServerLostError):
        await none.discover()


async def test_a_descriptor_set_stands_for_reflection(upstreams: Upstreams, tmp_path: Path) -> None:
    path = tmp_path / "orders.binpb"
    path.write_bytes(dpb.FileDescriptorSet(file=[file_descriptor()]).SerializeToString())
    async with orders_server(with_reflection=False) as (_, port):
        with pytest.raises(ServerLostError):
            await upstreams.servers.open_source(upstreams.add(port)).discover()
        tool = await upstreams.tool("Get", port, descriptor_set=str(path))
        assert await upstreams.value(tool, id="7") == {"id": "7"}
        path.write_bytes(b"\xff no descriptors")
        broken = upstreams.servers.open_source(upstreams.add(port, descriptor_set=str(path)))
        with pytest.raises(ServerLostError):
            await broken.discover()
    lacking = file_descriptor()
    lacking.dependency.append("other.proto")
    path.write_bytes(dpb.FileDescriptorSet(file=[lacking]).SerializeToString())


async def test_a_unary_call_carries_every_kind_of_field(upstreams: Upstreams, server: Server) -> None:
    tool = await upstreams.tool("Get", server[1])
    order = {"id": "7", "amount": "1152921504606846976", "tags": ["a", "b"], "kind": "KIND_GIFT", "next": {"id": "8"}}
    assert await upstreams.value(tool, **order) == order
    assert server[0].seen[-1].amount == 2**60
    # The deadline of the call is that of the server's call.
    assert 0 < server[0].deadlines[-1] < 30
    assert upstreams.circuits.outcomes == [CallOutcome.SUCCESS]


async def test_a_stream_of_the_server_is_one_result(upstreams: Upstreams, server: Server) -> None:
    tool, channel = await upstreams.tool("List", server[1]), MemoryChannel()
    result = await upstreams.runner.run(tool, replace(work(id="a"), channel=channel))
    assert [each["id"] for each in result.value["messages"]] == ["a-0", "a-1", "a-2"]
    assert result.value["messages"][2]["amount"] == str(2**60 + 2)


async def test_an_endless_stream_ends_at_the_limit_of_results(upstreams: Upstreams, server: Server) -> None:
    tool = await upstreams.tool("Endless", server[1])
    assert (await upstreams.failure(tool)).reason is Reason.RESULT_TOO_LARGE


async def test_an_answer_beyond_the_limit_is_too_large_and_no_fault_of_the_service(
    upstreams: Upstreams, server: Server
) -> None:
    tool = await upstreams.tool("Get", server[1])
    assert (await upstreams.failure(tool, id="x" * (2 * MIB))).reason is Reason.RESULT_TOO_LARGE
    assert upstreams.circuits.outcomes == [CallOutcome.SUCCESS]


async def test_arguments_without_a_form_are_refused_before_anything_is_sent(
    upstreams: Upstreams, server: Server
) -> None:
    tool = await upstreams.tool("Get", server[1])
    for arguments in ({"amount": "x"}, {"amount": 2**63}, {"kind": "KIND_OTHER"}, {"tags": "a"}, {"unknown": 1}):
        assert (await upstreams.failure(tool, **arguments)).reason is Reason.ARGUMENTS_INVALID
    assert server[0].seen == []


async def test_a_deadline_ends_the_call_on_the_server_too(upstreams: Upstreams, server: Server) -> None:
    tool = await upstreams.tool("Hang", server[1])
    request = replace(work(), on_begin=lambda: 0.2)
    with pytest.raises(MeshError) as caught:
        await upstreams.runner.run(tool, request)
    assert (caught.value.reason, caught.value.metadata["effect"]) == (Reason.EXTERNAL_TIMEOUT, "unknown")
    async with asyncio.timeout(60):
        await server[0].canceled.wait()
    # It had less time than the tool declares, which says nothing about the service.
    assert upstreams.circuits.outcomes == [CallOutcome.NONE]


async def test_a_canceled_call_is_canceled_on_the_server(upstreams: Upstreams, server: Server) -> None:
    tool, channel = await upstreams.tool("Hang", server[1]), MemoryChannel()
    running = asyncio.create_task(upstreams.runner.run(tool, replace(work(), channel=channel, on_begin=lambda: 300.0)))
    channel.canceled.set_result("enough")
    with pytest.raises(MeshError) as caught:
        await running
    assert caught.value.reason is Reason.INVOCATION_CANCELED
    assert upstreams.circuits.outcomes == []


@pytest.mark.parametrize(
    ("status", "reason", "outcome"),
    [
        (grpc.StatusCode.UNAVAILABLE, Reason.EXTERNAL_UNAVAILABLE, CallOutcome.FAILURE),
        (grpc.StatusCode.INTERNAL, Reason.EXTERNAL_UNAVAILABLE, CallOutcome.FAILURE),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, Reason.EXTERNAL_RATE_LIMITED, CallOutcome.NONE),
        (grpc.StatusCode.NOT_FOUND, Reason.EXECUTION_FAILED, CallOutcome.SUCCESS),
        (grpc.StatusCode.UNAUTHENTICATED, Reason.EXECUTION_FAILED, CallOutcome.SUCCESS),
    ],
)
async def test_a_status_says_what_became_of_the_call_and_nothing_is_sent_twice(
    upstreams: Upstreams, server: Server, status: grpc.StatusCode, reason: Reason, outcome: CallOutcome
) -> None:
    server[0].status = status
    failure = await upstreams.failure(await upstreams.tool("Fail", server[1]), id="7")
    assert failure.reason is reason
    assert "the text of the server" not in failure.message
    assert upstreams.circuits.outcomes == [outcome]
    assert len(server[0].seen) == 1


async def test_an_open_circuit_holds_calls_back(upstreams: Upstreams, server: Server) -> None:
    tool = await upstreams.tool("Get", server[1])
    upstreams.circuits.open = True
    assert (await upstreams.failure(tool)).reason is Reason.CIRCUIT_OPEN
    assert server[0].seen == []


async def test_a_server_whose_messages_changed_is_not_called(upstreams: Upstreams) -> None:
    async with orders_server() as (_, port):
        tool = await upstreams.tool("Get", port)
    # The number of a field is not in any schema, and changes what is sent.
    async with orders_server(number=9) as (orders, port):
        upstreams.add(port)
        assert (await upstreams.failure(tool, id="7")).reason is Reason.TOOL_UNAVAILABLE
        assert (orders.seen, upstreams.checks) == ([], ["shop"])


async def test_a_server_that_is_away_was_sent_nothing(upstreams: Upstreams) -> None:
    async with orders_server() as (_, port):
        tool = await upstreams.tool("Get", port)
    failure = await upstreams.failure(tool, id="7")
    assert (failure.reason, failure.metadata["effect"]) == (Reason.EXTERNAL_UNAVAILABLE, "none")
    assert upstreams.checks == ["shop"]


async def test_only_allowed_addresses_are_reached(tmp_path: Path, server: Server) -> None:
    outside = Upstreams(tmp_path, internal=[])
    with pytest.raises(ServerLostError):
        await outside.servers.open_source(outside.add(server[1])).discover()
    await outside.close()


async def test_a_secret_is_sent_to_its_host_and_repeated_to_no_caller(upstreams: Upstreams, server: Server) -> None:
    use = upb.MetadataSecret(key="authorization", secret="secret://orders", prefix="Bearer ")
    tool = await upstreams.tool("Get", server[1], secrets=[use])
    assert (await upstreams.failure(tool)).reason is Reason.CREDENTIAL_NOT_FOUND
    (upstreams.secrets / "orders").write_text("s3cret-of-orders")
    binding = {"hosts": ["127.0.0.1"], "namespaces": ["other"]}
    (upstreams.secrets / "orders.json").write_text(json.dumps(binding))
    assert (await upstreams.failure(tool)).reason is Reason.CREDENTIAL_NOT_FOUND
    assert server[0].seen == []
    (upstreams.secrets / "orders.json").write_text(json.dumps({**binding, "namespaces": ["shop"]}))
    repeated = await upstreams.value(tool, id="Bearer s3cret-of-orders")
    assert server[0].seen[-1].note == b"Bearer s3cret-of-orders"
    assert "s3cret" not in json.dumps(repeated)
    assert "s3cret" not in base64.b64decode(repeated.get("note", "")).decode()


async def test_a_preview_sends_nothing(upstreams: Upstreams, server: Server) -> None:
    tool = await upstreams.tool("Get", server[1])
    result = await upstreams.runner.run(tool, replace(work(id="7"), preview=True))
    assert result.forecast is not None
    assert server[0].seen == []
