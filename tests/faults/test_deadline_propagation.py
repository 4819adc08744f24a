"""Two hundred random deadlines against tools that never end and scatter processes about: every answer comes in time, and nothing that
was started outlives it. It measures, and a busy machine is a part of what it measures, so it is among the slow tests."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
import pytest
from toolmesh.executor.v1 import executor_service_pb2 as pb
from toolmesh.executor.v1 import executor_service_pb2_grpc as rpc

from tests.harness.fleet import Fleet, credentials_of, envelope_in, fleet_of
from tests.harness.lingering_executor import ENTRY_POINTS, PACKS, bearing, last_seen
from tests.harness.mesh import Mesh, running_mesh

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

DEADLINES = 200
SHORTEST, LONGEST = 0.020, 1.5
AT_ONCE = 2
OUTLIVES_AT_MOST = 0.1
# The tool, what it started under another name, and two orphans.
SCATTERED = 4
# With less than this a call may be over on its way, before an executor has seen it: then its own transport tells the caller.
TOLD_BY_THE_MESH = 0.1
DEADLINE_EXCEEDED = "E3002"


@dataclass(frozen=True)
class Measured:
    """One call: what it was given, when it was answered, and when a process of it was last seen after that, in seconds from its beginning."""

    tool: str
    given: float
    answered: float
    alive: float
    code: str


@pytest.fixture(scope="module")
def own_mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """A mesh of this module's own: it measures time, and nobody else should take any."""
    with running_mesh(tmp_path_factory.mktemp("deadlines")) as running:
        yield running


@pytest.fixture(scope="module")
def fleet(own_mesh: Mesh, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    logs = tmp_path_factory.mktemp("logs")
    environ = {"TOOLMESH_TOOL_PACKS": str(PACKS)}
    with fleet_of(own_mesh, "tests.harness.lingering_executor", logs, 1, **environ) as running:
        yield running


@asynccontextmanager
async def executor(fleet: Fleet) -> AsyncIterator[Any]:
    options = [("grpc.ssl_target_name_override", "executor")]
    address = f"127.0.0.1:{fleet.members[0].port}"
    async with grpc.aio.secure_channel(address, credentials_of(fleet.mesh), options=options) as channel:
        yield rpc.ExecutorServiceStub(channel)


async def measured(stub: Any, token: str, tool: str, given: float, marker: str = "") -> Measured:
    """Make a call that cannot end by itself, and watch what it leaves behind."""
    marker = marker or "tm" + secrets.token_hex(6)
    request = pb.InvokeRequest(tool=tool, arguments=json.dumps({"marker": marker}).encode())
    began = time.monotonic()
    code = ""
    try:
        await stub.Invoke(request, metadata=(("authorization", f"Bearer {token}"),), timeout=given)
    except grpc.aio.AioRpcError as error:
        envelope = envelope_in(error)
        code = envelope.code if envelope is not None else error.code().name
    answered = time.monotonic() - began
    seen = await asyncio.to_thread(last_seen, marker, began + given + 5)
    return Measured(tool, given, answered, seen - began, code)


async def test_no_answer_is_late_and_nothing_outlives_its_deadline(fleet: Fleet, own_mesh: Mesh) -> None:
    token, chance = own_mesh.token(), random.Random(20_260_102)
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(stub: Any, number: int, given: float) -> Measured:
        async with turns:
            return await measured(stub, token, list(ENTRY_POINTS)[number % 2], given)

    async with executor(fleet) as stub:
        await known(stub, token)
        given = [chance.uniform(SHORTEST, LONGEST) for _ in range(DEADLINES)]
        found = await asyncio.gather(*(one(stub, number, each) for number, each in enumerate(given)))
    assert [each for each in found if each.alive > each.given + OUTLIVES_AT_MOST] == []
    assert [each for each in found if each.code == DEADLINE_EXCEEDED and each.answered > each.given] == []
    # With hardly any time the caller's own transport may be the first to say that it is over.
    assert [each for each in found if each.code != DEADLINE_EXCEEDED and each.given >= TOLD_BY_THE_MESH] == []
    assert {each.code for each in found} <= {DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"}


async def known(stub: Any, token: str) -> None:
    """Return once both tools are registered and were seen to run, with all that they scatter: so what is not seen later is not there."""
    for tool in ENTRY_POINTS:
        async with asyncio.timeout(60):
            while not await scatters(stub, token, tool):
                continue


async def scatters(stub: Any, token: str, tool: str) -> bool:
    """Say whether the tool, its child that it called by another name, and its orphans were seen while it ran."""
    marker = "tm" + secrets.token_hex(6)
    call = asyncio.ensure_future(measured(stub, token, tool, 4.0, marker))
    most = 0
    while not call.done() and most < SCATTERED:
        most = max(most, await asyncio.to_thread(bearing, marker))
    return (await call).code == DEADLINE_EXCEEDED and most >= SCATTERED
