"""What invocations without their caller cost: jobs and reports per second against empty calls, memory of a stream.

An executor with a reporting tool runs beside the mesh's own, which takes part in running jobs of its tools.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import grpc.aio
from toolmesh.executor.v1 import executor_service_pb2 as call_pb
from toolmesh.executor.v1 import invocation_service_pb2 as pb
from toolmesh.executor.v1 import invocation_service_pb2_grpc as rpc

from bench.environment.machine import cpu_seconds, family, resident_bytes
from bench.environment.mesh import Stage
from bench.floors.echo import EMPTY
from bench.load.generator import Body, offer
from bench.report.measurement import Row
from tests.harness.executors.fleet import Fleet, channel_of, fleet_of

AT = 16
JOBS = 400
TALKERS, LINES = 8, 1_500
IDLE = 500
STEPS = 200
_SETTINGS = {
    "TOOLMESH_SUBJECT_CALLS": "2000",
    "TOOLMESH_TENANT_CALLS": "2000",
    "TOOLMESH_JOB_CONCURRENCY": "64",
    "TOOLMESH_JOB_TENANT_CONCURRENCY": "64",
    "TOOLMESH_JOB_TOOL_CONCURRENCY": "64",
}


def run(stage: Stage) -> Iterator[Row]:
    """Measure jobs, reports and idle streams."""
    target = stage.floor(EMPTY)
    empty = offer(
        "jobs", "an empty call", target, [Body(b"")], concurrency=AT, pids=[stage.floor_pid], seconds=1.5, warm=0.5
    )
    yield empty
    # The steps of the tool have their effect in that folder.
    settings = {**_SETTINGS, "BOOKING_FAULTS": str(stage.folder)}
    with fleet_of(stage.mesh, "tests.harness.executors.booking_executor", stage.folder, 1, **settings) as fleet:
        pids = [*stage.pids(), *_executor(fleet)]
        yield _measured("job, started and awaited", JOBS, pids, fleet, stage.token, _run_jobs).against(empty)
        case = f"report of a tool, read by a stream, {TALKERS} streams"
        yield _measured(case, TALKERS * LINES, pids, fleet, stage.token, _read_reports).against(empty)
        yield asyncio.run(_idle_streams(fleet, stage.token))
        yield asyncio.run(_checkpoints(fleet, stage.token))


def _executor(fleet: Fleet) -> list[int]:
    process = fleet.members[0].process
    assert process is not None
    return family(process.pid)


def _measured(
    case: str, number: int, pids: list[int], fleet: Fleet, token: str, work: Callable[[Any, Any], Awaitable[None]]
) -> Row:
    async def timed() -> tuple[float, float]:
        async with channel_of(fleet, fleet.members[0]) as channel:
            stub, metadata = rpc.InvocationServiceStub(channel), (("authorization", f"Bearer {token}"),)
            await _warm(stub, metadata)
            began, used = time.monotonic(), cpu_seconds(pids)
            await work(stub, metadata)
            return time.monotonic() - began, cpu_seconds(pids) - used

    seconds, cpu = asyncio.run(timed())
    return Row("jobs", case, AT, rps=round(number / seconds, 1), cpu_us_per_call=round(cpu / number * 1e6, 1))


async def _warm(stub: Any, metadata: Any) -> None:
    """Read one report, as soon as the executor knows the tool: it learns of it in the background."""
    give_up = time.monotonic() + 60
    while True:
        try:
            await _read(stub, metadata, steps=1)
            return
        except grpc.aio.AioRpcError as error:
            unknown = error.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE)
            if not unknown or time.monotonic() > give_up:
                raise
            await asyncio.sleep(0.2)


async def _run_jobs(stub: Any, metadata: Any) -> None:
    """Start jobs and wait for each, sixteen at a time."""
    left = iter(range(JOBS))
    call = call_pb.InvokeRequest(tool="echo", arguments=b'{"text":"hello"}')

    async def caller() -> None:
        for _ in left:
            started = await stub.StartInvocation(pb.StartInvocationRequest(request=call), metadata=metadata)
            wait = pb.WaitInvocationRequest(name=started.invocation.name)
            ended = (await stub.WaitInvocation(wait, metadata=metadata)).invocation
            assert ended.HasField("result"), ended.error.message

    await asyncio.gather(*(caller() for _ in range(AT)))


async def _read_reports(stub: Any, metadata: Any) -> None:
    """Read the reports of tools that say as much as they can."""
    for count in await asyncio.gather(*(_read(stub, metadata, steps=0, lines=LINES) for _ in range(TALKERS))):
        assert count == LINES


async def _read(stub: Any, metadata: Any, **arguments: int) -> int:
    """Return how many lines a stream brought."""
    stream = await _opened(stub, metadata, **arguments)
    lines = 0
    while (message := await stream.read()) is not grpc.aio.EOF:
        lines += message.event.HasField("log_message")
    return lines


async def _opened(stub: Any, metadata: Any, **arguments: Any) -> Any:
    stream = stub.StreamInvocation(metadata=metadata)
    call = call_pb.InvokeRequest(tool="report_steps", arguments=json.dumps(arguments).encode())
    await stream.write(pb.StreamInvocationRequest(start=pb.StartInvocationRequest(request=call)))
    return stream


async def _idle_streams(fleet: Fleet, token: str) -> Row:
    """Attach many streams to one job that waits for input, and see what the executor holds for each."""
    metadata = (("authorization", f"Bearer {token}"),)
    async with channel_of(fleet, fleet.members[0]) as channel:
        stub: Any = rpc.InvocationServiceStub(channel)
        asking = await _opened(stub, metadata, steps=0, question="Go on?")
        name = (await asking.read()).invocation.name
        before = resident_bytes(_executor(fleet))
        attach = pb.StreamInvocationRequest(attach=pb.AttachInvocation(name=name))
        streams = [stub.StreamInvocation(metadata=metadata) for _ in range(IDLE)]
        for stream in streams:
            await stream.write(attach)
        for stream in streams:
            await stream.read()
        held = resident_bytes(_executor(fleet)) - before
        await asking.write(pb.StreamInvocationRequest(cancel=pb.CancelStreamedInvocation()))
        for stream in streams:
            stream.cancel()
    return Row("jobs", f"{IDLE} idle open streams", more={"KB a stream": round(held / IDLE / 1024, 1)})


async def _checkpoints(fleet: Fleet, token: str) -> Row:
    """Run a tool that saves its growing state after every step, and see what the store keeps of it."""
    metadata = (("authorization", f"Bearer {token}"),)
    async with channel_of(fleet, fleet.members[0]) as channel:
        stub: Any = rpc.InvocationServiceStub(channel)
        arguments = json.dumps({"steps": STEPS}).encode()
        call = call_pb.InvokeRequest(tool="step_again", arguments=arguments, idempotency_key="bench-steps")
        name = (await stub.StartInvocation(pb.StartInvocationRequest(request=call), metadata=metadata)).invocation.name
        ended = (await stub.WaitInvocation(pb.WaitInvocationRequest(name=name), metadata=metadata)).invocation
        assert ended.HasField("result"), ended.error.message
        kept = (await stub.ListCheckpoints(pb.ListCheckpointsRequest(parent=name), metadata=metadata)).checkpoints
    raw, stored = (sum(getattr(each, size) for each in kept) for size in ("state_bytes", "stored_bytes"))
    share = round(stored / raw, 3)
    more = {
        "bytes a checkpoint": round(stored / len(kept)),
        "bytes of its state": round(raw / len(kept)),
        "share": share,
    }
    return Row("jobs", f"{len(kept)} checkpoints of {STEPS} steps", more=more)
