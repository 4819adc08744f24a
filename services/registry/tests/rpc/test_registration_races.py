"""Concurrent registrations of two processes, and a process that is killed while registering."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import Any

import grpc.aio
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine
from toolmesh.registry.v1 import registry_service_pb2 as pb

from libs.common.errors import Reason
from libs.common.rpc.status import from_rpc_error
from libs.common.runtime.settings import Address
from services.registry.tests.calls import PATIENCE
from services.registry.tests.manifests import reader
from services.registry.tests.rpc.announcing import announce_every_runner
from services.registry.tests.rpc.consistency import find_inconsistencies
from services.registry.tests.rpc.processes import RegistryProcess

Launch = Callable[[], Awaitable[RegistryProcess]]
ROUNDS, KILLS = 15, 2


@pytest.fixture
async def launch(
    pki: Any,
    process_environment: Callable[[str], dict[str, str]],
    database_url: str,
    valkey_url: str,
    authz_address: Address,
) -> AsyncIterator[Launch]:
    """Return a function that starts one more process on the same database."""
    started: list[RegistryProcess] = []
    environment = {
        **process_environment("registry"),
        "TOOLMESH_DATABASE_URL": database_url,
        "TOOLMESH_REDIS_URL": valkey_url,
        "TOOLMESH_AUTHZ_ADDRESS": str(authz_address),
    }

    async def one() -> RegistryProcess:
        started.append(await RegistryProcess.start(environment, pki))
        await announce_every_runner(database_url)
        return started[-1]

    yield one
    for process in started:
        await process.stop()


async def register(process: RegistryProcess, name: str, changelog: str, version: str = "1.0.0") -> Any:
    """Register, and return the response or the error."""
    request = pb.RegisterToolRequest(manifest=reader(name, version, changelog=changelog))
    try:
        return await process.stub.RegisterTool(request, timeout=PATIENCE)
    except grpc.aio.AioRpcError as error:
        return from_rpc_error(error)


async def race(processes: list[RegistryProcess], rounds: int) -> None:
    """Let every process register the same version with its own content, round after round."""
    for number in range(rounds):
        name = f"acme.raced_{number}"
        answers = await asyncio.gather(*(register(p, name, f"by {i}") for i, p in enumerate(processes)))
        won = [i for i, answer in enumerate(answers) if isinstance(answer, pb.RegisterToolResponse)]
        assert len(won) == 1
        lost = [answer for i, answer in enumerate(answers) if i not in won]
        assert [answer.reason for answer in lost] == [Reason.TOOL_VERSION_CONFLICT] * len(lost)
        digest = answers[won[0]].version.digest
        assert [answer.metadata["digest"] for answer in lost] == [digest] * len(lost)
        for process in processes:
            stored = await process.stub.GetTool(pb.GetToolRequest(name=name), timeout=PATIENCE)
            assert [version.digest for version in stored.versions] == [digest]
            assert stored.versions[0].manifest.changelog == f"by {won[0]}"


async def killed_while_registering(launch: Launch, engine: AsyncEngine, kills: int, seed: int) -> int:
    """Kill processes at random moments of a stream of registrations, and return the number of acknowledged ones. All
    acknowledged ones exist afterwards, and the database is consistent."""
    rng, acknowledged, number = Random(seed), 0, 0
    for _ in range(kills):
        process = await launch()
        answered: list[str] = []
        enough, wanted = asyncio.Event(), rng.randint(1, 12)

        async def keep_registering(
            process: RegistryProcess, answered: list[str], first: int, enough: asyncio.Event, wanted: int
        ) -> None:
            for offset in range(10_000):
                name = f"acme.killed_{first + offset // 2}"
                answer = await register(process, name, "", f"1.{offset % 2}.0")
                if not isinstance(answer, pb.RegisterToolResponse):
                    return
                answered.append(answer.version.name)
                if len(answered) >= wanted:
                    enough.set()

        streams = [
            asyncio.create_task(keep_registering(process, answered, number + 5000 * i, enough, wanted))
            for i in range(3)
        ]
        await enough.wait()
        # A moment within a registration: each takes a few milliseconds, and three are in flight.
        await asyncio.sleep(rng.random() * 0.02)
        await process.kill()
        await asyncio.gather(*streams)
        number += 20_000
        acknowledged += len(answered)
        assert await find_inconsistencies(engine) == {}
        await _all_there(launch, answered)
    return acknowledged


async def _all_there(launch: Launch, names: list[str]) -> None:
    process = await launch()
    for name in names:
        tool, _, version = name.partition("/versions/")
        request = pb.ResolveToolRequest(tool=tool, version_constraint=version)
        assert (await process.stub.ResolveTool(request, timeout=PATIENCE)).version.name == name
    fresh = await register(process, f"acme.after_{len(names)}", "")
    assert isinstance(fresh, pb.RegisterToolResponse)
    await process.stop()


async def test_of_two_processes_exactly_one_wins(launch: Launch, engine: AsyncEngine) -> None:
    processes = [await launch(), await launch()]
    await race(processes, ROUNDS)
    assert await find_inconsistencies(engine) == {}


async def test_a_process_that_is_killed_leaves_nothing_by_half(launch: Launch, engine: AsyncEngine) -> None:
    assert await killed_while_registering(launch, engine, KILLS, seed=1) >= KILLS
