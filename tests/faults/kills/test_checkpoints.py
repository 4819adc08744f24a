"""A job of many steps whose executor is killed again and again: it ends, and each step has its effect once."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import pytest
from toolmesh.executor.v1 import executor_service_pb2 as call_pb
from toolmesh.executor.v1 import invocation_pb2 as ipb
from toolmesh.executor.v1 import invocation_service_pb2 as pb
from toolmesh.executor.v1 import invocation_service_pb2_grpc as rpc

from libs.common.ids import new_id
from tests.faults.kills.test_jobs import Jobs, connected
from tests.harness.executors.fleet import Fleet, Member, channel_of
from tests.harness.executors.stepping_tool import effects, tries
from tests.harness.mesh import Mesh

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]

STEPS, PAUSE_MS, KILLS = 1000, 60, 20


def member_of(fleet: Fleet, executor_id: str) -> Member:
    return next(member for member in fleet.members if member.environ["TOOLMESH_INSTANCE_ID"] == executor_id)


async def kill_where_it_runs(fleet: Fleet, jobs: Jobs, name: str, key: str, folder: Path) -> int:
    """Kill the executor that runs the job at random moments, each after it got further; return how often."""
    chance = random.Random(28)
    for number in range(KILLS):
        before = sum(tries(folder).values())
        while sum(tries(folder).values()) <= before:  # noqa: ASYNC110  (it happens in another process)
            await asyncio.sleep(0.01)
        await asyncio.sleep(chance.uniform(0.0, 1.5))
        if len(effects(folder, key)) == STEPS:
            return number
        job = await jobs.get(name)
        await asyncio.to_thread(fleet.kill, member_of(fleet, job.executor_id))
        fleet.revive()
    return KILLS


async def test_every_step_has_its_effect_once_whenever_its_executor_dies(
    own_mesh: Mesh, fleet: Fleet, folder: Path
) -> None:
    token, key = own_mesh.token(trust="90", ttl="1h"), new_id()
    async with connected(fleet, token) as jobs, asyncio.timeout(1500):
        arguments = json.dumps({"steps": STEPS, "pause_ms": PAUSE_MS}).encode()
        call = call_pb.InvokeRequest(tool="step_again", arguments=arguments, idempotency_key=key)
        name = await jobs.start_call(call)
        kills = await kill_where_it_runs(fleet, jobs, name, key, folder)
        ended = await jobs.ended(name)
        await asyncio.to_thread(fleet.wait_ready)
    channel = channel_of(fleet, fleet.members[0])
    request = pb.ListCheckpointsRequest(parent=name)
    found = await rpc.InvocationServiceStub(channel).ListCheckpoints(
        request, metadata=(("authorization", f"Bearer {token}"),), timeout=60, wait_for_ready=True
    )
    await channel.close()
    assert (ended.error.code, ended.state) == ("", ipb.INVOCATION_STATE_SUCCEEDED)
    assert effects(folder, key) == list(range(1, STEPS + 1))
    assert kills == KILLS
    counted = sum(tries(folder).values())
    # At most the step under way is tried again after each kill.
    assert counted <= STEPS + KILLS
    raw, stored = (sum(getattr(each, size) for each in found.checkpoints) for size in ("state_bytes", "stored_bytes"))
    assert stored <= 0.4 * raw
    print(  # noqa: T201
        f"\n{STEPS} steps, {kills} kills, {counted} tries;"
        f" {len(found.checkpoints)} checkpoints of {raw} bytes in {stored} bytes ({stored / raw:.1%})"
    )
