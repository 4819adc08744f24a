"""The health of versions through the real server: in watches, answers and questions to policy."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any

from toolmesh.registry.v1 import http_endpoint_pb2 as hpb
from toolmesh.registry.v1 import registry_service_pb2 as pb
from toolmesh.registry.v1 import runner_service_pb2 as runner_pb
from toolmesh.registry.v1 import runner_service_pb2_grpc as runner_rpc
from toolmesh.registry.v1 import tool_health_pb2 as health_pb
from toolmesh.registry.v1 import tool_manifest_pb2 as mpb
from toolmesh.registry.v1 import upstream_pb2 as upb
from toolmesh.registry.v1 import upstream_service_pb2 as upstream_pb
from toolmesh.registry.v1 import upstream_service_pb2_grpc as upstream_rpc

from services.registry.tests.calls import PATIENCE
from services.registry.tests.conftest import Replica
from services.registry.tests.manifests import reader
from services.registry.tests.polling import until
from services.registry.tests.service_stubs import register
from services.registry.tests.watch_client import WatchClient

HEALTHY, UNAVAILABLE = health_pb.TOOL_HEALTH_HEALTHY, health_pb.TOOL_HEALTH_UNAVAILABLE
NAME = "tools/acme.find_order/versions/1.0.0"
ORIGIN = "https://api.acme.example"


def caller_of_an_api() -> Any:
    manifest = reader()
    manifest.execution.runner = mpb.RUNNER_KIND_HTTP
    manifest.execution.access_tier = mpb.ACCESS_TIER_NETWORK
    manifest.execution.http.CopyFrom(
        hpb.HttpEndpoint(
            method=hpb.HTTP_METHOD_GET,
            url=f"{ORIGIN}/find",
            parameters=[
                hpb.HttpParameter(argument="text", place=hpb.HTTP_PLACE_QUERY),
                hpb.HttpParameter(argument="times", place=hpb.HTTP_PLACE_QUERY),
            ],
        )
    )
    manifest.execution.network_policy.allowed_domains.append("api.acme.example")
    return manifest


async def announce(replica: Replica, state: runner_pb.CircuitState.ValueType) -> None:
    """Announce a change of the circuit, by an executor with the runner."""
    circuit = runner_pb.AnnouncedCircuit(name=f"acme/{ORIGIN}", state=state)
    circuit.change_time.FromDatetime(datetime.now(UTC))
    request = runner_pb.AnnounceRunnersRequest(
        instance="one", process_id="1", runners=[mpb.RUNNER_KIND_HTTP], circuits=[circuit]
    )
    await replica.stub("executor", runner_rpc.RunnerServiceStub).AnnounceRunners(request, timeout=PATIENCE)


async def shown(replica: Replica) -> Any:
    """Return the health of the tool's only version, as every answer shows it."""
    stub = replica.stub()
    got = (await stub.GetTool(pb.GetToolRequest(name="acme.find_order"), timeout=PATIENCE)).versions[0].health
    page = (await stub.ListTools(pb.ListToolsRequest(), timeout=PATIENCE)).tools[0].version.health
    listed = await stub.ListToolVersions(pb.ListToolVersionsRequest(tool="acme.find_order"), timeout=PATIENCE)
    resolved = await stub.ResolveTool(pb.ResolveToolRequest(tool="acme.find_order"), timeout=PATIENCE)
    same = got == page == listed.versions[0].health == resolved.version.health
    return got if same else None


async def test_the_health_of_a_version_follows_the_circuits_of_its_service(registry: Replica) -> None:
    await register(registry, caller_of_an_api())
    view = WatchClient()
    watch = view.open(registry.stub("executor"))
    await view.follow(watch, lambda held: NAME in held.healths and held.healths[NAME].health == HEALTHY)
    await announce(registry, runner_pb.CIRCUIT_STATE_OPEN)
    await view.follow(watch, lambda held: held.healths[NAME].health == UNAVAILABLE)
    found = await until(partial(shown, registry), lambda health: health and health.health == UNAVAILABLE)
    assert (found.version, bool(found.reason)) == (NAME, True)
    await announce(registry, runner_pb.CIRCUIT_STATE_HALF_OPEN)
    await view.follow(watch, lambda held: held.healths[NAME].health == health_pb.TOOL_HEALTH_DEGRADED)
    # A watch that resumes gets it again, because health has no place in the log of changes.
    watch.cancel()
    view.healths.clear()
    watch = view.open(registry.stub("executor"))
    await view.follow(watch, lambda held: NAME in held.healths)
    assert view.healths[NAME].health == health_pb.TOOL_HEALTH_DEGRADED
    await announce(registry, runner_pb.CIRCUIT_STATE_CLOSED)
    await view.follow(watch, lambda held: held.healths[NAME].health == HEALTHY)


async def test_an_announcement_counts_at_once_at_the_replica_that_gets_it(registry: Replica) -> None:
    await register(registry, caller_of_an_api())
    for state, health in ((runner_pb.CIRCUIT_STATE_OPEN, UNAVAILABLE), (runner_pb.CIRCUIT_STATE_CLOSED, HEALTHY)):
        await announce(registry, state)
        answer = await registry.stub().GetTool(pb.GetToolRequest(name="acme.find_order"), timeout=PATIENCE)
        assert answer.versions[0].health.health == health


async def test_tools_of_an_upstream_are_unavailable_while_it_does_not_answer(registry: Replica) -> None:
    operator, executor = (registry.stub(peer, upstream_rpc.UpstreamServiceStub) for peer in ("operator", "executor"))
    endpoint = upb.UpstreamEndpoint(mcp_stdio=upb.McpStdioEndpoint(command=["/usr/bin/clock-server"]))
    added = upstream_pb.AddUpstreamRequest(upstream_id="clocks", endpoint=endpoint)
    await operator.AddUpstream(added, timeout=PATIENCE)
    definition = (
        b'{"name": "tell", "description": "Tells the time of a zone.", "annotations": {"readOnlyHint": true}, '
        b'"inputSchema": {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]}}'
    )
    found = upstream_pb.Discovery(
        server_name="clock",
        server_version="1",
        protocol_version="2025-11-25",
        tools=[upstream_pb.DiscoveredTool(native_name="tell", definition=definition)],
    )
    report = partial(upstream_pb.ReportUpstreamRequest, name="upstreams/clocks", instance="one", generation=1)
    await executor.ReportUpstream(report(discovery=found), timeout=PATIENCE)

    async def health() -> Any:
        answer = await registry.stub().GetTool(pb.GetToolRequest(name="clocks.tell"), timeout=PATIENCE)
        return answer.versions[0].health.health

    await until(health, lambda seen: seen == HEALTHY)
    failure = upstream_pb.DiscoveryFailure(reason="it does not answer")
    await executor.ReportUpstream(report(failure=failure), timeout=PATIENCE)
    await until(health, lambda seen: seen == UNAVAILABLE)
    await executor.ReportUpstream(report(discovery=found), timeout=PATIENCE)
    await until(health, lambda seen: seen == HEALTHY)
