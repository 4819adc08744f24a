"""Announcements of executors: what is admitted, what is listed as `no runner`, and how an announcement ends."""

from __future__ import annotations

from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from toolmesh.registry.v1 import discovery_service_pb2 as discovery_pb
from toolmesh.registry.v1 import discovery_service_pb2_grpc as discovery_rpc
from toolmesh.registry.v1 import registry_service_pb2 as pb
from toolmesh.registry.v1 import runner_service_pb2 as runner_pb
from toolmesh.registry.v1 import runner_service_pb2_grpc as runner_rpc
from toolmesh.registry.v1 import tool_manifest_pb2 as mpb

from libs.common.errors import Reason
from services.registry.tests.calls import PATIENCE, refusal
from services.registry.tests.conftest import Replica, Start
from services.registry.tests.manifests import reader
from services.registry.tests.polling import until


def tool(name: str, runner: int, entry_point: str = "") -> Any:
    message = reader(name)
    message.execution.runner, message.execution.entry_point = runner, entry_point  # type: ignore[assignment]
    message.interface.safety.sandbox_tier = mpb.SANDBOX_TIER_PROCESS
    return pb.RegisterToolRequest(manifest=message)


def announcement(instance: str = "one", process: str = "1", *packs: str) -> runner_pb.AnnounceRunnersRequest:
    return runner_pb.AnnounceRunnersRequest(
        instance=instance,
        process_id=process,
        runners=[mpb.RUNNER_KIND_BUILTIN, mpb.RUNNER_KIND_PYTHON],
        sandbox_tiers=[mpb.SANDBOX_TIER_PROCESS],
        packs=[runner_pb.AnnouncedPack(name=pack) for pack in packs],
    )


async def announce(
    executor: Any, engine: AsyncEngine, request: runner_pb.AnnounceRunnersRequest
) -> runner_pb.AnnounceRunnersResponse:
    """Announce, under a lease that does not end while a busy machine runs the test."""
    answer: runner_pb.AnnounceRunnersResponse = await executor.AnnounceRunners(request, timeout=PATIENCE)
    async with engine.begin() as connection:
        await connection.execute(text("update executors set expire_time = now() + interval '1 day'"))
    return answer


async def listed(replica: Replica) -> str:
    """Return why the only tool has no runner, as all listings say it."""
    stub = replica.stub()
    page = await stub.ListTools(pb.ListToolsRequest(), timeout=PATIENCE)
    resolved = await stub.ResolveTool(pb.ResolveToolRequest(tool="acme.count"), timeout=PATIENCE)
    got = await stub.GetTool(pb.GetToolRequest(name="acme.count"), timeout=PATIENCE)
    discovery = replica.stub("operator", discovery_rpc.DiscoveryServiceStub)
    found = await discovery.SearchTools(
        discovery_pb.SearchToolsRequest(names=["acme.count"], mode=discovery_pb.SEARCH_MODE_LEXICAL), timeout=PATIENCE
    )
    surface = await discovery.CompileSurface(discovery_pb.CompileSurfaceRequest(token_budget=4000), timeout=PATIENCE)
    excluded = {each.reason: each.detail for each in surface.surface.excluded_tools}
    said = {
        page.tools[0].version.no_runner,
        resolved.version.no_runner,
        got.versions[0].no_runner,
        found.tools[0].no_runner,
        excluded.get(discovery_pb.SURFACE_REASON_NO_RUNNER, ""),
    }
    [word] = said
    return word


async def test_a_tool_is_admitted_while_an_executor_can_run_it_and_listed_without_one(
    start: Start, engine: AsyncEngine
) -> None:
    first = await start(announced=False)
    registry, executor = first.stub(), first.stub("executor", runner_rpc.RunnerServiceStub)
    request = tool("acme.count", mpb.RUNNER_KIND_PYTHON, "kit/words:count")

    unknown = await refusal(registry.RegisterTool(request, timeout=PATIENCE))
    assert (unknown.reason, unknown.row.retryable) == (Reason.SERVICE_UNAVAILABLE, True)
    assert unknown.retry_after
    # A manifest that no executor could mend is not worth a retry.
    broken = tool("acme.count", mpb.RUNNER_KIND_PYTHON, "words")
    assert (await refusal(registry.RegisterTool(broken, timeout=PATIENCE))).reason is Reason.TOOL_MANIFEST_INVALID

    answer = await announce(executor, engine, announcement("one", "1", "other"))
    assert answer.lease.seconds >= 1
    for wrong, rules in (
        (request, ["runner.pack"]),
        # Only an upstream makes tools of MCP servers.
        (tool("acme.far", mpb.RUNNER_KIND_MCP), ["entry_point.upstream", "runner.none"]),
        (tool("acme.far", mpb.RUNNER_KIND_REMOTE), ["runner.none"]),
    ):
        refused = await refusal(registry.RegisterTool(wrong, timeout=PATIENCE))
        assert (refused.reason, [v.rule for v in refused.violations]) == (Reason.TOOL_MANIFEST_INVALID, rules)

    # Several executors: one of them is enough.
    await announce(executor, engine, announcement("two", "1", "kit"))
    assert (await registry.RegisterTool(request, timeout=PATIENCE)).created
    second = await start(announced=False)
    for replica in (first, second):
        assert await listed(replica) == ""

    # A restarted process replaces the announcement of its instance; the old one cannot take the new one back.
    await announce(executor, engine, announcement("two", "2", "kit"))
    await executor.WithdrawRunners(runner_pb.WithdrawRunnersRequest(instance="two", process_id="1"), timeout=PATIENCE)
    assert await listed(first) == ""
    await executor.WithdrawRunners(runner_pb.WithdrawRunnersRequest(instance="two", process_id="2"), timeout=PATIENCE)
    assert "kit" in await listed(first)

    # The same content again is answered, though nothing runs it now.
    again = await registry.RegisterTool(request, timeout=PATIENCE)
    assert (again.created, bool(again.version.no_runner)) == (False, True)

    async def second_shows_it() -> bool:
        return bool((await second.stub().ListTools(pb.ListToolsRequest(), timeout=PATIENCE)).tools[0].version.no_runner)

    await until(second_shows_it, bool)
    # A lease ends by itself, and every replica sees it.
    await announce(executor, engine, announcement("two", "3", "kit"))
    assert await listed(first) == ""
    async with engine.begin() as connection:
        await connection.execute(text("update executors set expire_time = now()"))

    async def nothing_announced() -> bool:
        return "announced" in (await first.stub().ListTools(pb.ListToolsRequest())).tools[0].version.no_runner

    await until(nothing_announced, bool)


async def test_a_tool_whose_limits_no_executor_keeps_is_refused_then_listed_without_a_runner(
    start: Start, engine: AsyncEngine
) -> None:
    replica = await start(announced=False)
    registry, executor = replica.stub(), replica.stub("executor", runner_rpc.RunnerServiceStub)
    request = tool("acme.count", mpb.RUNNER_KIND_PYTHON, "kit/words:count")
    request.manifest.execution.resource_limits.cpu = "500m"
    loose = announcement("one", "1", "kit")
    loose.unkept_limits.add(sandbox_tier=mpb.SANDBOX_TIER_PROCESS, limit=runner_pb.LIMIT_KIND_CPU_SHARE)
    await announce(executor, engine, loose)
    refused = await refusal(registry.RegisterTool(request, timeout=PATIENCE))
    assert (refused.reason, [v.rule for v in refused.violations]) == (Reason.TOOL_MANIFEST_INVALID, ["runner.limit"])
    # Without the limit, or with an executor that keeps it, the tool is admitted.
    modest = tool("acme.modest", mpb.RUNNER_KIND_PYTHON, "kit/words:count")
    assert (await registry.RegisterTool(modest, timeout=PATIENCE)).created
    await announce(executor, engine, announcement("two", "1", "kit"))
    assert (await registry.RegisterTool(request, timeout=PATIENCE)).created
    await executor.WithdrawRunners(runner_pb.WithdrawRunnersRequest(instance="two", process_id="1"), timeout=PATIENCE)
    got = await registry.GetTool(pb.GetToolRequest(name="acme.count"), timeout=PATIENCE)
    assert "cpu" in got.versions[0].no_runner


async def test_only_executors_announce_and_announcements_are_checked(registry: Replica) -> None:
    for peer in ("operator", "gateway", "edge"):
        stub = registry.stub(peer, runner_rpc.RunnerServiceStub)
        refused = await refusal(stub.AnnounceRunners(announcement(), timeout=PATIENCE))
        assert refused.reason is Reason.PEER_NOT_ALLOWED
    stub = registry.stub("executor", runner_rpc.RunnerServiceStub)
    nothing = runner_pb.AnnounceRunnersRequest(instance="one", process_id="1")
    assert (await refusal(stub.AnnounceRunners(nothing, timeout=PATIENCE))).reason is Reason.INVALID_REQUEST
