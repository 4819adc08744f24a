"""Checkpoints, resumption and take-over, on two executors that share a database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text
from toolmesh.executor.v1 import executor_service_pb2 as call_pb
from toolmesh.executor.v1 import invocation_pb2 as ipb
from toolmesh.executor.v1 import invocation_service_pb2 as pb

from libs.common.errors import Reason
from libs.common.ids import new_id
from libs.common.json.jsonio import dump
from libs.common.sql.engine import engine_for
from services.executor.config import Settings
from services.executor.tests.peers import AuditPeer
from services.executor.tests.rpc.replicas import Replicas, refusal
from services.executor.tests.waiting import until
from tests.harness.executors.stepping_tool import effects, tries

SUCCEEDED, FAILED = ipb.INVOCATION_STATE_SUCCEEDED, ipb.INVOCATION_STATE_FAILED
MALLORY: dict[str, Any] = {"sub": "did:web:toolmesh.local:users:mallory"}
Sql = Callable[..., Any]


@pytest.fixture
async def sql(executor_settings: Callable[..., Settings]) -> Any:
    """Runs statements in the database of the executors."""
    engine = engine_for(executor_settings().database_url, schema="executor")

    async def execute(statement: str, **values: Any) -> None:
        async with engine.connect() as connection:
            await connection.execute(text(statement), values)

    yield execute
    await engine.dispose()


async def start(replicas: Replicas, tool: str = "step_once", **arguments: Any) -> Any:
    call = call_pb.InvokeRequest(tool=tool, arguments=dump(arguments), idempotency_key=new_id())
    return (await replicas.ask(0, "StartInvocation", pb.StartInvocationRequest(request=call))).invocation


def resume(replicas: Replicas, name: str, checkpoint: str = "", where: int = 1, **claims: Any) -> Any:
    request = pb.ResumeInvocationRequest(name=name, checkpoint=pb.ResumePoint(name=checkpoint))
    return replicas.ask(where, "ResumeInvocation", request, **claims)


async def checkpoints(replicas: Replicas, name: str, **claims: Any) -> Any:
    answer = await replicas.ask(1, "ListCheckpoints", pb.ListCheckpointsRequest(parent=name), **claims)
    return list(answer.checkpoints)


async def test_an_ended_invocation_is_resumed_from_a_checkpoint(replicas: Replicas, audit: AuditPeer, sql: Sql) -> None:
    first = await start(replicas, steps=9, fail_at=6, label_at=3)
    key = first.idempotency_key
    assert await refusal(resume(replicas, f"invocations/{new_id()}")) is Reason.INVOCATION_NOT_FOUND
    failed = await replicas.ended(0, first.name)
    assert failed.state == FAILED
    found = await checkpoints(replicas, first.name)
    assert [each.number for each in found] == [5, 4, 3, 2, 1]
    assert [each.label for each in found] == ["", "", "half-way", "", ""]
    assert found[2].kind == ipb.CHECKPOINT_KIND_NAMED
    assert not found[2].HasField("expire_time")
    assert found[0].HasField("expire_time")
    # Other callers see nothing, and cannot resume or delete.
    delete = pb.DeleteCheckpointRequest(name=found[0].name)
    for call in (
        checkpoints(replicas, first.name, **MALLORY),
        resume(replicas, first.name, **MALLORY),
        replicas.ask(0, "DeleteCheckpoint", delete, **MALLORY),
    ):
        assert await refusal(call) is Reason.INVOCATION_NOT_FOUND
    for name in (f"{first.name}/checkpoints/77", f"{first.name}/checkpoints/x", "invocations/other/checkpoints/1"):
        assert await refusal(resume(replicas, first.name, name)) is Reason.CHECKPOINT_NOT_FOUND
    await sql("update checkpoints set content = ''::bytea where number = 4")
    assert await refusal(resume(replicas, first.name, found[1].name)) is Reason.CHECKPOINT_CORRUPTED
    # A resumption that is asked for twice is made once, by the newest usable checkpoint.
    resumed = (await resume(replicas, first.name)).invocation
    assert resumed.resumed_from == first.name
    assert (await resume(replicas, first.name, where=0)).invocation.name == resumed.name
    ended = await replicas.ended(0, resumed.name)
    assert (ended.state, ended.result.structured_content) == (SUCCEEDED, b'{"steps":9}')
    # Number 5 is a difference to 4, which is damaged: the next usable one is 3. The tool sees the key of the first run.
    assert effects(replicas.folder, key) == list(range(1, 10))
    assert {step: count for (_, step), count in tries(replicas.folder).items() if count > 1} == {4: 2, 5: 2}
    assert await refusal(resume(replicas, resumed.name)) is Reason.RESUME_FAILED
    events = [each.event async for each in replicas.watch(1, resumed.name) if each.HasField("event")]
    started_from = next(event.checkpoint for event in events if event.HasField("checkpoint"))
    assert started_from.name == f"{resumed.name}/checkpoints/1"
    records = [record for record in audit.records if record.invocation_id == resumed.invocation_id]
    assert f"{resumed.name}/checkpoints/1" in {record.resumed_from for record in records}
    # Deleting one takes its differences along, and is idempotent.
    for _ in range(2):
        await replicas.ask(0, "DeleteCheckpoint", pb.DeleteCheckpointRequest(name=found[1].name))
    assert [each.number for each in await checkpoints(replicas, first.name)] == [3, 2, 1]


async def test_what_cannot_be_resumed_says_so(replicas: Replicas) -> None:
    running = await replicas.report(0, steps=1, pause_ms=600_000)
    assert await refusal(resume(replicas, running.name)) is Reason.RESUME_FAILED
    await replicas.ask(0, "CancelInvocation", pb.CancelInvocationRequest(name=running.name))
    await replicas.ended(0, running.name)
    # Its tool saves nothing.
    assert await refusal(resume(replicas, running.name)) is Reason.RESUME_FAILED
    unsaved = await start(replicas, steps=3, fail_at=1)
    await replicas.ended(0, unsaved.name)
    assert await refusal(resume(replicas, unsaved.name)) is Reason.CHECKPOINT_NOT_FOUND


async def test_a_job_that_loses_its_replica_goes_on_from_its_checkpoint(replicas: Replicas, sql: Sql) -> None:
    job = await start(replicas, steps=60, pause_ms=50)
    for lost in range(2):
        await until(lambda: len(effects(replicas.folder, job.idempotency_key)) > 3 + 10 * lost)  # noqa: B023
        await sql("update jobs set owner = 'gone', lease_until = now() where end_time is null")
    ended = await replicas.ended(1, job.name)
    assert ended.state == SUCCEEDED
    assert effects(replicas.folder, job.idempotency_key) == list(range(1, 61))
    counted = tries(replicas.folder)
    # Only the step that was under way may be tried again.
    assert sum(counted.values()) <= 60 + 2 * 2
    events = [each.event async for each in replicas.watch(1, job.name) if each.HasField("event")]
    sources = [event.transition.reason for event in events if event.HasField("transition")]
    assert sum("/checkpoints/" in source for source in sources) == 2
