"""Many streams on one executor, some of whose readers stand still; and streams whose proxy and executors are killed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from toolmesh.executor.v1 import executor_service_pb2 as call_pb
from toolmesh.executor.v1 import invocation_pb2 as ipb
from toolmesh.executor.v1 import invocation_service_pb2 as pb
from toolmesh.executor.v1 import invocation_service_pb2_grpc as rpc
from toolmesh_sdk import AsyncClient

from tests.harness.executors.fleet import Fleet, Member, channel_of, fleet_of
from tests.harness.mesh import Mesh

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]

STREAMS, STALLED, STEPS = 500, 50, 20
# What a stalled reader does not read: more than its connection can hold, and less than a slow store makes a run leave
# out.
PART_BYTES = 20_000
MAX_GROWTH_MB = 400


@pytest.fixture(scope="module")
def fleet(own_mesh: Mesh, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    environ = {
        "TOOLMESH_SUBJECT_CALLS": "2000",
        "TOOLMESH_TENANT_CALLS": "2000",
        "TOOLMESH_JOB_CONCURRENCY": str(STREAMS),
        "TOOLMESH_JOB_TENANT_CONCURRENCY": str(STREAMS),
        "TOOLMESH_JOB_TOOL_CONCURRENCY": str(STREAMS),
    }
    logs = tmp_path_factory.mktemp("logs")
    with fleet_of(own_mesh, "tests.harness.executors.booking_executor", logs, 2, **environ) as running:
        yield running


def resident_mb(member: Member) -> float:
    """The memory of a process."""
    assert member.process is not None
    status = Path(f"/proc/{member.process.pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024


def start_message(**arguments: Any) -> pb.StreamInvocationRequest:
    call = call_pb.InvokeRequest(tool="report_steps", arguments=json.dumps(arguments).encode())
    return pb.StreamInvocationRequest(start=pb.StartInvocationRequest(request=call))


async def opened(stub: Any, metadata: Any, **arguments: Any) -> Any:
    """Return a stream that has started its invocation."""
    while True:
        stream = stub.StreamInvocation(metadata=metadata, wait_for_ready=True)
        try:
            await stream.write(start_message(**arguments))
            await stream.read()
        except grpc.aio.AioRpcError as error:
            # The caller's rate, or an executor whose tools are still arriving.
            if error.code() not in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.NOT_FOUND):
                raise
            await asyncio.sleep(0.5)
        else:
            return stream


async def read_to_end(stream: Any) -> list[ipb.InvocationEvent]:
    events: list[ipb.InvocationEvent] = []
    while (message := await stream.read()) is not grpc.aio.EOF:
        if message.HasField("event"):
            events.append(message.event)
    return events


def check(events: list[ipb.InvocationEvent]) -> None:
    """Every event is there once and in order, progress goes up, and the result is the last."""
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    steps = [event.progress.current_step for event in events if event.HasField("progress")]
    assert steps == sorted(set(steps))
    assert steps[-1] == STEPS
    assert events[-1].ended.state == ipb.INVOCATION_STATE_SUCCEEDED


async def test_stalled_readers_cost_others_nothing_and_memory_stays_bounded(own_mesh: Mesh, fleet: Fleet) -> None:
    # One executor: the other one must not help.
    await asyncio.to_thread(fleet.kill, fleet.members[1])
    member = fleet.members[0]
    metadata = (("authorization", f"Bearer {own_mesh.token(trust='90', ttl='1h')}"),)
    channels = [channel_of(fleet, member) for _ in range(10)]
    stubs: list[Any] = [rpc.InvocationServiceStub(channel) for channel in channels]
    try:
        async with asyncio.timeout(900):
            await read_to_end(await opened(stubs[0], metadata, steps=STEPS))
            before = resident_mb(member)
            stalled = await asyncio.gather(
                *(
                    opened(stubs[n % 10], metadata, steps=STEPS, pause_ms=250, part_bytes=PART_BYTES)
                    for n in range(STALLED)
                )
            )
            streams = await asyncio.gather(
                *(opened(stubs[n % 10], metadata, steps=STEPS, pause_ms=250) for n in range(STREAMS - STALLED))
            )
            for events in await asyncio.gather(*(read_to_end(stream) for stream in streams)):
                check(events)
            after = resident_mb(member)
            # Those that stood still find everything there when they go on.
            for events in await asyncio.gather(*(read_to_end(stream) for stream in stalled)):
                check(events)
                assert sum(event.HasField("partial_result") for event in events) == STEPS
            print(f"\n{STREAMS} streams, {STALLED} stalled: {before:.0f} MB before, {after:.0f} MB after")  # noqa: T201
            assert after - before < MAX_GROWTH_MB
    finally:
        for channel in channels:
            await channel.close()
        fleet.revive()
        await asyncio.to_thread(fleet.wait_ready)


async def test_a_stream_survives_its_proxy_its_executor_and_the_one_that_runs_its_tool(
    own_mesh: Mesh, fleet: Fleet
) -> None:
    token = own_mesh.token(trust="90", ttl="1h")
    async with channel_of(fleet, fleet.members[0]) as channel:
        metadata = (("authorization", f"Bearer {token}"),)
        stub: Any = rpc.InvocationServiceStub(channel)
        stream = stub.StreamInvocation(metadata=metadata)
        await stream.write(start_message(steps=STEPS * 20, pause_ms=50))
        name = (await stream.read()).invocation.name
        stream.cancel()
    events: list[ipb.InvocationEvent] = []
    async with AsyncClient(own_mesh.edge, token=token) as client, asyncio.timeout(900):
        cuts = iter(("envoy", "executor", "runner"))
        async with aclosing(client.attach(name).__aiter__()) as following:
            async for event in following:
                events.append(event)
                if len([each for each in events if each.HasField("progress")]) % 15 == 1 and event.HasField("progress"):
                    # Through the same proxy, which may not be back yet.
                    runner = (await client.job(name).get(timeout=120)).executor_id
                    await asyncio.to_thread(cut, own_mesh, fleet, next(cuts, ""), runner)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert events[-1].ended.state == ipb.INVOCATION_STATE_SUCCEEDED
    assert next(cuts, "") == ""
    print(f"\n{len(events)} events over three cuts")  # noqa: T201


def cut(mesh: Mesh, fleet: Fleet, what: str, runner: str) -> None:
    """Kill a part of the way between a tool and its reader."""
    if what in ("envoy", "executor"):
        mesh.kill(what)
    elif what == "runner":
        fleet.kill(fleet.members[int(runner.rpartition("-")[2])])
