"""Invocations by name on two executors that share a database, put together like real ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import text
from toolmesh.executor.v1 import executor_service_pb2 as call_pb
from toolmesh.executor.v1 import invocation_pb2 as ipb
from toolmesh.executor.v1 import invocation_service_pb2 as pb

from libs.common.errors import Reason
from libs.common.ids import new_id
from libs.common.rpc.status import from_envelope
from libs.common.sql.engine import engine_for
from services.executor.config import Settings
from services.executor.tests.peers import AuditPeer
from services.executor.tests.rpc.replicas import Replicas, refusal
from tests.harness.executors.booking_executor import entries

SUCCEEDED, CANCELED = ipb.INVOCATION_STATE_SUCCEEDED, ipb.INVOCATION_STATE_CANCELED
RUNNING = ipb.INVOCATION_STATE_RUNNING


async def test_an_invocation_is_started_awaited_watched_and_listed_at_any_replica(
    replicas: Replicas, audit: AuditPeer
) -> None:
    started = await replicas.start(0, 50, key="k")
    ended = await replicas.ended(1, started.name)
    assert ended.state == SUCCEEDED
    assert ended.result.invocation_id == started.invocation_id
    assert [key for key, _, _ in entries(replicas.folder)].count("k") == 1
    events = [each.event async for each in replicas.watch(1, started.name)]
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert [event.transition.state for event in events[-2:-1]] == [RUNNING]
    assert events[-1].ended.result == ended.result
    rest = [each.event async for each in replicas.watch(0, started.name, after=events[1].sequence)]
    assert [event.sequence for event in rest] == [event.sequence for event in events[2:]]
    # The same key is the same invocation, wherever it is asked for.
    again = await replicas.start(1, 50, key="k")
    assert again.name == started.name
    assert await refusal(replicas.start(1, 51, key="k")) is Reason.IDEMPOTENCY_CONFLICT
    listed = await replicas.ask(1, "ListInvocations", pb.ListInvocationsRequest(states=[SUCCEEDED]))
    assert started.name in [each.name for each in listed.invocations]


async def test_a_watch_that_waits_sees_the_end_and_a_cancellation_at_another_replica_is_carried_out(
    replicas: Replicas,
) -> None:
    started = await replicas.start(0, 60_000)
    watch = replicas.watch(1, started.name)
    async for each in watch:
        if each.event.transition.state == RUNNING:
            break
    await replicas.ask(1, "CancelInvocation", pb.CancelInvocationRequest(name=started.name))
    last = [each.event async for each in watch][-1]
    assert last.ended.state == CANCELED
    assert from_envelope(last.ended.error).reason is Reason.INVOCATION_CANCELED
    # Canceling it again changes nothing.
    answer = await replicas.ask(0, "CancelInvocation", pb.CancelInvocationRequest(name=started.name))
    assert answer.invocation.state == CANCELED


async def test_a_start_estimates_by_earlier_runs_of_the_tenant(replicas: Replicas) -> None:
    async def estimate(**claims: Any) -> Any:
        call = call_pb.InvokeRequest(tool="book_asked", arguments=b'{"takes_ms":40}', idempotency_key=new_id())
        return await replicas.ask(0, "StartInvocation", pb.StartInvocationRequest(request=call), **claims)

    first = await estimate()
    assert not first.HasField("estimated_duration")
    await replicas.ended(0, first.invocation.name)
    second = await estimate()
    assert second.estimated_duration.ToMilliseconds() >= 40
    other = await estimate(tenant="another")
    assert not other.HasField("estimated_duration")


async def test_others_find_nothing_of_an_invocation(replicas: Replicas) -> None:
    started = await replicas.start(0)
    for method, request in (
        ("GetInvocation", pb.GetInvocationRequest(name=started.name)),
        ("WaitInvocation", pb.WaitInvocationRequest(name=started.name)),
        ("CancelInvocation", pb.CancelInvocationRequest(name=started.name)),
    ):
        asked = replicas.ask(0, method, request, sub="did:web:toolmesh.local:users:mallory")
        assert await refusal(asked) is Reason.INVOCATION_NOT_FOUND
    listed = await replicas.ask(
        0, "ListInvocations", pb.ListInvocationsRequest(), sub="did:web:toolmesh.local:users:mallory"
    )
    assert not listed.invocations


async def test_what_invoke_refuses_is_not_started(replicas: Replicas) -> None:
    call = call_pb.InvokeRequest(tool="book_once", arguments=b'{"takes_ms":-1}', idempotency_key="k")
    assert (
        await refusal(replicas.ask(0, "StartInvocation", pb.StartInvocationRequest(request=call)))
        is Reason.ARGUMENTS_INVALID
    )
    call = call_pb.InvokeRequest(tool="core.unheard_of")
    assert (
        await refusal(replicas.ask(0, "StartInvocation", pb.StartInvocationRequest(request=call)))
        is Reason.TOOL_NOT_FOUND
    )


async def test_cancelling_an_invocation_cancels_its_parts_and_no_other(replicas: Replicas) -> None:
    async def start(where: int, parent: str = "", **claims: Any) -> Any:
        arguments = b'{"steps":1,"pause_ms":600000}'
        request = pb.StartInvocationRequest(
            request=call_pb.InvokeRequest(tool="report_steps", arguments=arguments), parent=parent
        )
        return (await replicas.ask(where, "StartInvocation", request, **claims)).invocation

    mallory = {"sub": "did:web:toolmesh.local:users:mallory"}
    parent, other = await start(0), await start(1)
    part = await start(1, parent.name)
    inner = await start(0, part.name)
    assert (part.parent, inner.parent, parent.parent) == (parent.name, part.name, "")
    assert await refusal(start(0, parent.name, **mallory)) is Reason.INVOCATION_NOT_FOUND
    await replicas.ask(1, "CancelInvocation", pb.CancelInvocationRequest(name=parent.name))
    for job in (parent, part, inner):
        ended = await replicas.ended(0, job.name)
        assert from_envelope(ended.error).reason is Reason.INVOCATION_CANCELED
    assert await refusal(start(0, parent.name)) is Reason.FAILED_PRECONDITION
    still = (await replicas.ask(0, "GetInvocation", pb.GetInvocationRequest(name=other.name))).invocation
    assert not still.HasField("end_time")
    await replicas.ask(0, "CancelInvocation", pb.CancelInvocationRequest(name=other.name))


async def test_a_run_that_loses_its_claim_is_repeated_by_the_rule_of_its_tool(
    replicas: Replicas, executor_settings: Callable[..., Settings]
) -> None:
    started = await replicas.start(0, 3_000, key="lost-claim", tool="book_again")
    async for each in replicas.watch(1, started.name):
        if each.event.transition.state == RUNNING:
            break
    engine = engine_for(executor_settings().database_url, schema="executor")
    async with engine.connect() as connection:
        lose = "update claims set invocation_id = 'gone', lease_until = now() where key = 'lost-claim'"
        assert (await connection.execute(text(lose))).rowcount == 1
    await engine.dispose()
    ended = await replicas.ended(1, started.name)
    assert ended.state == SUCCEEDED
    assert (replicas.folder / "entry-lost-claim").exists()
