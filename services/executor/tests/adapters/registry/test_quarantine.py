"""Quarantine: refused here at once, and everywhere once the registry has accepted."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import grpc
import grpc.aio
import pytest
from toolmesh.registry.v1 import lifecycle_service_pb2 as pb
from toolmesh.registry.v1 import lifecycle_service_pb2_grpc as rpc

from libs.common.errors import MeshError, Reason
from libs.common.telemetry.log import Log
from services.executor.adapters.registry.quarantine import QuarantineRefusingTools
from services.executor.domain import errors
from services.executor.domain.tool import VersionIdentity
from services.executor.tests.fakes import KnownTools
from services.executor.tests.peers import refuse, serving
from services.executor.tests.samples import a_tool
from services.executor.tests.waiting import until

SAY, HEAR = a_tool(), a_tool(name="tools/core.hear/versions/1.0.0", qualified="core.hear")


class LifecyclePeer(rpc.LifecycleServiceServicer):
    """A registry that takes quarantines in, once it has refused as often as a test wants."""

    def __init__(self) -> None:
        self.asked: list[pb.QuarantineToolRequest] = []
        self.refusals: list[Reason] = []
        self.answering = asyncio.Event()
        self.answering.set()

    def add(self, server: grpc.aio.Server) -> None:
        rpc.add_LifecycleServiceServicer_to_server(self, server)

    async def QuarantineTool(self, request: Any, context: Any) -> Any:
        self.asked.append(request)
        await self.answering.wait()
        if self.refusals:
            await refuse(context, self.refusals.pop(0))
        return pb.QuarantineToolResponse()


class View(KnownTools):
    """A view by full names that receives the quarantine when the test calls `update`."""

    def resolve(self, reference: str, constraint: str) -> Any:
        return super().resolve(reference.rpartition(".")[2], constraint)

    def update(self) -> None:
        self.failure = errors.tool_unavailable(VersionIdentity(SAY.name, SAY.digest), "quarantined")


@pytest.fixture
def view() -> View:
    return View(SAY, HEAR)


@pytest.fixture
def registry() -> LifecyclePeer:
    return LifecyclePeer()  # type: ignore[abstract]


@pytest.fixture
async def quarantine(
    pki: Any, stack: AsyncExitStack, reach: Callable[..., Any], view: View, registry: LifecyclePeer
) -> AsyncIterator[QuarantineRefusingTools]:
    address = await stack.enter_async_context(serving(pki, "registry", registry.add))
    sink = os.open(os.devnull, os.O_WRONLY)
    log = Log("executor", descriptor=sink)
    made = QuarantineRefusingTools(view, await reach("registry", address), log)
    yield made
    registry.answering.set()
    await made.stop()
    log.flush()
    os.close(sink)


def refused(quarantine: QuarantineRefusingTools, tool: str = "core.say") -> MeshError:
    with pytest.raises(MeshError) as caught:
        quarantine.resolve(tool, "")
    return caught.value


async def test_no_version_is_quarantined_at_first(quarantine: QuarantineRefusingTools) -> None:
    assert quarantine.resolve("core.say", "") is SAY


async def test_a_quarantined_version_is_refused_before_the_registry_answers(
    quarantine: QuarantineRefusingTools, registry: LifecyclePeer
) -> None:
    registry.answering.clear()
    imposing = asyncio.ensure_future(quarantine.impose(SAY, "it wrote", "inv-1", within=30))
    await until(lambda: registry.asked)
    error = refused(quarantine)
    assert (error.reason, error.metadata["state"]) == (Reason.TOOL_UNAVAILABLE, "quarantined")
    assert quarantine.resolve("core.hear", "") is HEAR
    assert not imposing.done()
    imposing.cancel()


async def test_a_report_carries_version_reason_and_invocation(
    quarantine: QuarantineRefusingTools, registry: LifecyclePeer, view: View
) -> None:
    view.update()
    await quarantine.impose(SAY, "it wrote", "inv-1", within=30)
    assert registry.asked == [pb.QuarantineToolRequest(name=SAY.name, reason="it wrote", request_id="inv-1")]


async def test_a_failed_report_is_retried_with_the_same_id(
    quarantine: QuarantineRefusingTools, registry: LifecyclePeer, view: View
) -> None:
    view.update()
    registry.refusals = [Reason.SERVICE_UNAVAILABLE, Reason.SERVICE_UNAVAILABLE]
    await quarantine.impose(SAY, "it wrote", "inv-1", within=30)
    assert [request.request_id for request in registry.asked] == ["inv-1"] * 3


async def test_a_version_stays_refused_until_the_view_has_the_new_state(
    quarantine: QuarantineRefusingTools, registry: LifecyclePeer, view: View
) -> None:
    await quarantine.impose(SAY, "it wrote", "inv-1", within=0)
    await until(lambda: registry.asked)
    assert refused(quarantine).metadata["state_reason"] == "it wrote"
    view.failure = errors.catalog_stale()
    await quarantine.impose(SAY, "it wrote", "inv-1", within=0.2)
    view.failure = None
    assert refused(quarantine).reason is Reason.TOOL_UNAVAILABLE
    view.update()
    await quarantine.impose(SAY, "it wrote", "inv-1", within=30)
    # A release in the registry takes effect here too.
    view.failure = None
    assert quarantine.resolve("core.say", "") is SAY


async def test_an_existing_quarantine_is_left_to_the_registry(
    quarantine: QuarantineRefusingTools, registry: LifecyclePeer, view: View
) -> None:
    view.update()
    registry.refusals = [Reason.FAILED_PRECONDITION]
    await quarantine.impose(SAY, "it wrote", "inv-1", within=30)
    view.failure = None
    assert quarantine.resolve("core.say", "") is SAY


async def test_a_version_stays_refused_if_the_registry_refuses_the_report(
    quarantine: QuarantineRefusingTools, registry: LifecyclePeer
) -> None:
    registry.refusals = [Reason.PEER_NOT_ALLOWED]
    await quarantine.impose(SAY, "it wrote", "inv-1", within=30)
    assert refused(quarantine).reason is Reason.TOOL_UNAVAILABLE
    assert len(registry.asked) == 1


async def test_repeated_quarantines_send_one_report(
    quarantine: QuarantineRefusingTools, registry: LifecyclePeer, view: View
) -> None:
    registry.answering.clear()
    calls = [asyncio.ensure_future(quarantine.impose(SAY, "x", f"inv-{n}", within=30)) for n in range(10)]
    await until(lambda: registry.asked)
    view.update()
    registry.answering.set()
    await asyncio.gather(*calls)
    assert len(registry.asked) == 1


async def test_impose_returns_within_its_time_limit(
    quarantine: QuarantineRefusingTools, registry: LifecyclePeer
) -> None:
    registry.answering.clear()
    await quarantine.impose(SAY, "it wrote", "inv-1", within=0.01)
    assert refused(quarantine).reason is Reason.TOOL_UNAVAILABLE


async def test_a_long_reason_is_truncated(
    quarantine: QuarantineRefusingTools, registry: LifecyclePeer, view: View
) -> None:
    view.update()
    await quarantine.impose(SAY, "y" * 5000, "inv-1", within=30)
    assert len(registry.asked[0].reason) == 1000
