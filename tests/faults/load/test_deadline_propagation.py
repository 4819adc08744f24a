"""Two hundred random deadlines against tools that never end and scatter processes about: every answer comes in time,
and nothing that
was started outlives it. It measures, and a busy machine is a part of what it measures, so it is among the slow tests.
Only what the machine's
host gave to others is left out: then no process here could run, in time or late."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
import pytest
from toolmesh.executor.v1 import executor_service_pb2 as pb
from toolmesh.executor.v1 import executor_service_pb2_grpc as rpc

from bench.environment.machine import ticks
from tests.harness.executors.fleet import Fleet, credentials_of, envelope_in, fleet_of
from tests.harness.executors.lingering_executor import ENTRY_POINTS, PACKS, bearing, last_seen
from tests.harness.mesh import Mesh, running_mesh

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

DEADLINES = 200
SHORTEST, LONGEST = 0.020, 1.5
AT_ONCE = 2
OUTLIVES_AT_MOST = 0.1
# The tool, what it started under another name, and two orphans.
SCATTERED = 4
# With less than this a call may be over on its way, before an executor has seen it: then its own transport tells the
# caller.
TOLD_BY_THE_MESH = 0.1
# What the mesh keeps back of a deadline at most, to answer in time.
KEPT_BACK = 0.05
DEADLINE_EXCEEDED = "E3002"


@dataclass(frozen=True)
class Measured:
    """One call: what it was given, when it was answered, and when a process of it was last seen after that, in
    seconds from its beginning."""

    tool: str
    given: float
    answered: float
    alive: float
    code: str
    stolen: float
    """How many seconds the host gave to others meanwhile."""

    def later_than(self, seconds: float, moment: float) -> bool:
        """Say whether a moment was later than so many seconds after the deadline, and the host did not take the
        difference."""
        return moment > self.given + seconds + self.stolen


@pytest.fixture(scope="module")
def own_mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """A mesh of this module's own: it measures time, so it must be alone."""
    with running_mesh(tmp_path_factory.mktemp("deadlines")) as running:
        yield running


@pytest.fixture(scope="module")
def fleet(own_mesh: Mesh, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    logs = tmp_path_factory.mktemp("logs")
    environ = {"TOOLMESH_TOOL_PACKS": str(PACKS)}
    with fleet_of(own_mesh, "tests.harness.executors.lingering_executor", logs, 1, **environ) as running:
        yield running


@pytest.fixture(scope="module")
def watchers() -> Iterator[Executor]:
    """A process that looks for processes, because a thread that looks without a pause keeps answers from
    being read."""
    with ProcessPoolExecutor(AT_ONCE, multiprocessing.get_context("spawn")) as pool:
        yield pool


@asynccontextmanager
async def executor(fleet: Fleet) -> AsyncIterator[Any]:
    options = [("grpc.ssl_target_name_override", "executor")]
    address = f"127.0.0.1:{fleet.members[0].port}"
    async with grpc.aio.secure_channel(address, credentials_of(fleet.mesh), options=options) as channel:
        yield rpc.ExecutorServiceStub(channel)


async def measured(stub: Any, token: str, watchers: Executor, tool: str, given: float, marker: str = "") -> Measured:
    """Make a call that cannot end by itself, and watch what it leaves behind."""
    marker = marker or "tm" + secrets.token_hex(6)
    request = pb.InvokeRequest(tool=tool, arguments=json.dumps({"marker": marker}).encode())
    began, before = time.monotonic(), ticks()
    code = ""
    try:
        await stub.Invoke(request, metadata=(("authorization", f"Bearer {token}"),), timeout=given)
    except grpc.aio.AioRpcError as error:
        envelope = envelope_in(error)
        code = envelope.code if envelope is not None else error.code().name
    answered = time.monotonic() - began
    seen = await asyncio.get_running_loop().run_in_executor(watchers, last_seen, marker, began + given + 5)
    stolen = (ticks().stolen - before.stolen) / os.sysconf("SC_CLK_TCK")
    return Measured(tool, given, answered, seen - began, code, stolen)


async def test_no_answer_is_late_and_nothing_outlives_its_deadline(
    fleet: Fleet, own_mesh: Mesh, watchers: Executor
) -> None:
    token, chance = own_mesh.token(), random.Random(20_260_102)
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(stub: Any, number: int, given: float) -> Measured:
        async with turns:
            return await measured(stub, token, watchers, list(ENTRY_POINTS)[number % 2], given)

    async with executor(fleet) as stub:
        await known(stub, token, watchers)
        given = [chance.uniform(SHORTEST, LONGEST) for _ in range(DEADLINES)]
        found = await asyncio.gather(*(one(stub, number, each) for number, each in enumerate(given)))
    assert [each for each in found if each.later_than(OUTLIVES_AT_MOST, each.alive)] == []
    by_the_mesh = [each for each in found if each.code == DEADLINE_EXCEEDED]
    assert [each for each in by_the_mesh if each.later_than(0, each.answered)] == []
    # With hardly any time the caller's own transport may be the first to say that it is over.
    others = [each for each in found if each.code != DEADLINE_EXCEEDED]
    assert [each for each in others if each.given >= TOLD_BY_THE_MESH + each.stolen and each.stolen < KEPT_BACK] == []
    assert {each.code for each in found} <= {DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"}


async def known(stub: Any, token: str, watchers: Executor) -> None:
    """Return once both tools are registered and were seen to run, with all that they scatter: so what is not seen
    later is not there."""
    for tool in ENTRY_POINTS:
        async with asyncio.timeout(60):
            while not await scatters(stub, token, watchers, tool):
                continue


async def scatters(stub: Any, token: str, watchers: Executor, tool: str) -> bool:
    """Say whether the tool, its child that it called by another name, and its orphans were seen while it ran."""
    marker = "tm" + secrets.token_hex(6)
    call = asyncio.ensure_future(measured(stub, token, watchers, tool, 4.0, marker))
    most = 0
    while not call.done() and most < SCATTERED:
        most = max(most, await asyncio.get_running_loop().run_in_executor(watchers, bearing, marker))
    return (await call).code == DEADLINE_EXCEEDED and most >= SCATTERED
