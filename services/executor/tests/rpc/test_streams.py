"""What tools report, ask and are answered while they run, on two executors that share a database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc.aio
import pytest
from sqlalchemy import text
from toolmesh.audit.v1 import audit_record_pb2 as rpb
from toolmesh.executor.v1 import executor_service_pb2 as call_pb
from toolmesh.executor.v1 import invocation_pb2 as ipb
from toolmesh.executor.v1 import invocation_service_pb2 as pb

from libs.common.errors import Reason
from libs.common.ids import new_id
from libs.common.json.jsonio import dump
from libs.common.rpc.status import from_envelope, from_rpc_error
from libs.common.sql.engine import engine_for
from services.executor.config import Settings
from services.executor.tests.peers import AuditPeer, AuthzPeer
from services.executor.tests.rpc.replicas import Replicas, refusal
from services.executor.tests.waiting import until

SUCCEEDED, CANCELED = ipb.INVOCATION_STATE_SUCCEEDED, ipb.INVOCATION_STATE_CANCELED
RUNNING, NEEDS_INPUT = ipb.INVOCATION_STATE_RUNNING, ipb.INVOCATION_STATE_NEEDS_INPUT


def kinds(events: list[Any]) -> list[str]:
    return [event.WhichOneof("event") for event in events]


async def test_what_a_tool_reports_is_watched_at_any_replica_in_order_and_redacted(replicas: Replicas) -> None:
    started = await replicas.report(0, steps=1_000, line="password=hunter2hunter2")
    events = [each.event async for each in replicas.watch(1, started.name) if each.HasField("event")]
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    reports = [event for event in events if event.WhichOneof("event") not in ("transition", "ended")]
    assert kinds(reports)[:2] == ["log_message", "partial_result"]
    steps = [event.progress.current_step for event in reports[2:]]
    # Merged, in order, and the last one is never left out.
    assert steps == sorted(set(steps))
    assert steps[-1] == 1_000
    assert len(steps) < 1_000
    assert "hunter2" not in reports[0].log_message.text
    assert b"hunter2" not in reports[1].partial_result.content
    assert events[-1].ended.state == SUCCEEDED


async def next_of(stream: Any, kind: str) -> Any:
    """Return the next event of a kind."""
    while True:
        message = await stream.read()
        assert message is not grpc.aio.EOF
        if message.HasField("event") and message.event.WhichOneof("event") == kind:
            return getattr(message.event, kind)


def start_message(tool: str, *, on_disconnect: Any = pb.ON_DISCONNECT_UNSPECIFIED, **arguments: Any) -> Any:
    call = call_pb.InvokeRequest(tool=tool, arguments=dump(arguments))
    return pb.StreamInvocationRequest(start=pb.StartInvocationRequest(request=call, on_disconnect=on_disconnect))


async def test_a_stream_starts_answers_and_follows_an_invocation(replicas: Replicas) -> None:
    stream = replicas.stream(0)
    await stream.write(start_message("report_steps", steps=1, question="How many?"))
    name = (await stream.read()).invocation.name
    asked = await next_of(stream, "input_request")
    assert (asked.message, b"integer" in asked.schema) == ("How many?", True)
    for content in (b'{"n": "many"}', b"{", b'{"n": 1, "n": 2}'):
        await stream.write(
            pb.StreamInvocationRequest(input=pb.InvocationInput(input_id=asked.input_id, content=content))
        )
        refused = from_envelope((await stream.read()).refusal).reason
        assert refused in (Reason.ARGUMENTS_INVALID, Reason.INVALID_JSON)
    await stream.write(
        pb.StreamInvocationRequest(input=pb.InvocationInput(input_id=asked.input_id, content=b'{"n": 3}'))
    )
    ended = await next_of(stream, "ended")
    assert ended.state == SUCCEEDED
    assert ended.result.structured_content == b'{"steps":1,"answer":{"n":3}}'
    assert await stream.read() is grpc.aio.EOF
    # A second stream, attached behind an event, sees the rest of it.
    stream = replicas.stream(1)
    await stream.write(pb.StreamInvocationRequest(attach=pb.AttachInvocation(name=name, after_sequence=3)))
    rest = [message.event async for message in stream if message.HasField("event")]
    assert [event.sequence for event in rest] == list(range(4, rest[-1].sequence + 1))
    states = [event.transition.state for event in rest if event.HasField("transition")]
    assert states[-2:] == [ipb.INVOCATION_STATE_NEEDS_INPUT, RUNNING]


async def test_a_question_is_answered_by_name_at_another_replica_and_only_once(replicas: Replicas) -> None:
    started = await replicas.report(0, steps=0, question="How many?")
    stream = replicas.stream(1)
    await stream.write(pb.StreamInvocationRequest(attach=pb.AttachInvocation(name=started.name)))
    asked = await next_of(stream, "input_request")

    def answer(content: bytes, input_id: str = asked.input_id, **claims: Any) -> Any:
        given = pb.InvocationInput(input_id=input_id, content=content)
        return replicas.ask(1, "ResumeInvocation", pb.ResumeInvocationRequest(name=started.name, input=given), **claims)

    mallory = {"sub": "did:web:toolmesh.local:users:mallory"}
    assert await refusal(answer(b'{"n": 3}', **mallory)) is Reason.INVOCATION_NOT_FOUND
    assert await refusal(answer(b'{"n": "x"}')) is Reason.ARGUMENTS_INVALID
    assert await refusal(answer(b'{"n": 3}', input_id="another")) is Reason.FAILED_PRECONDITION
    await answer(b'{"n": 3}')
    assert (await next_of(stream, "ended")).state == SUCCEEDED
    assert await refusal(answer(b'{"n": 4}')) is Reason.FAILED_PRECONDITION


async def test_a_stream_that_is_not_opened_well_is_refused(replicas: Replicas) -> None:
    cancel = pb.StreamInvocationRequest(cancel=pb.CancelStreamedInvocation())
    unknown = pb.StreamInvocationRequest(attach=pb.AttachInvocation(name=f"invocations/{new_id()}"))
    for first, reason in ((cancel, Reason.INVALID_REQUEST), (unknown, Reason.INVOCATION_NOT_FOUND)):
        stream = replicas.stream(0)
        await stream.write(first)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stream.read()
        assert from_rpc_error(refused.value).reason is reason
    call = call_pb.InvokeRequest(tool="report_steps", arguments=b'{"steps":0}')
    alone = pb.StartInvocationRequest(request=call, on_disconnect=pb.ON_DISCONNECT_CANCEL)
    assert await refusal(replicas.ask(0, "StartInvocation", alone)) is Reason.INVALID_REQUEST


@pytest.mark.parametrize(("tool", "how"), [("report_steps", ""), ("report_deaf", "not_supported")])
async def test_a_cancellation_reaches_a_tool_that_supports_it_and_stops_others(
    replicas: Replicas, tool: str, how: str
) -> None:
    stream = replicas.stream(0)
    await stream.write(start_message(tool, steps=1, pause_ms=600_000))
    await next_of(stream, "progress")
    await stream.write(pb.StreamInvocationRequest(cancel=pb.CancelStreamedInvocation()))
    ended = await next_of(stream, "ended")
    assert ended.state == CANCELED
    assert from_envelope(ended.error).metadata.get("cancellation", "") == how


async def test_an_invocation_is_cancelled_when_its_last_stream_is_gone_for_long(
    replicas: Replicas, executor_settings: Callable[..., Settings]
) -> None:
    stream = replicas.stream(0)
    cancel = pb.ON_DISCONNECT_CANCEL
    await stream.write(start_message("report_steps", on_disconnect=cancel, steps=1, pause_ms=600_000))
    name = (await stream.read()).invocation.name
    await next_of(stream, "progress")
    stream.cancel()
    engine = engine_for(executor_settings().database_url, schema="executor")
    watch = replicas.watch(1, name)
    async with engine.begin() as connection:
        # As if nothing had renewed it for half a minute.
        await connection.execute(text("update job_attachments set attached_until = now() - interval '1 second'"))
    await engine.dispose()
    last = [each.event async for each in watch if each.HasField("event")][-1]
    assert last.ended.state == CANCELED


async def test_a_revoked_token_ends_what_it_started_also_while_it_waits_for_input(
    replicas: Replicas, authz: AuthzPeer
) -> None:
    token = {"jti": new_id()}
    call = call_pb.InvokeRequest(tool="report_steps", arguments=dump({"steps": 0, "question": "How many?"}))
    started = await replicas.ask(0, "StartInvocation", pb.StartInvocationRequest(request=call), **token)
    watch = replicas.watch(1, started.invocation.name)
    async for each in watch:
        if each.event.HasField("input_request"):
            break
    authz.invalidations.revoke(token_id=token["jti"])
    last = [each.event async for each in watch if each.HasField("event")][-1]
    assert from_envelope(last.ended.error).reason is Reason.TOKEN_REVOKED


async def test_every_state_of_a_job_is_on_record(replicas: Replicas, audit: AuditPeer) -> None:
    started = await replicas.report(0, steps=1, question="How many?")
    stream = replicas.stream(0)
    await stream.write(pb.StreamInvocationRequest(attach=pb.AttachInvocation(name=started.name)))
    asked = await next_of(stream, "input_request")
    given = pb.InvocationInput(input_id=asked.input_id, content=b'{"n": 3}')
    await replicas.ask(1, "ResumeInvocation", pb.ResumeInvocationRequest(name=started.name, input=given))
    await next_of(stream, "ended")
    wanted = {
        (rpb.EVENT_CLASS_INVOCATION_QUEUED, "queued"),
        (rpb.EVENT_CLASS_INVOCATION_STARTED, "running"),
        (rpb.EVENT_CLASS_INVOCATION_PROGRESS, "needs_input"),
        (rpb.EVENT_CLASS_INVOCATION_PROGRESS, "running"),
        (rpb.EVENT_CLASS_INVOCATION_SUCCEEDED, "succeeded"),
    }

    def recorded() -> set[tuple[Any, str]]:
        return {(record.event_class, record.state) for record in audit.about(started.invocation_id)}

    await until(lambda: wanted <= recorded())


async def test_a_question_is_asked_again_after_a_take_over_and_the_old_one_is_closed(replicas: Replicas) -> None:
    started = await replicas.report(0, steps=0, question="How many?")
    stream = replicas.stream(0)
    await stream.write(pb.StreamInvocationRequest(attach=pb.AttachInvocation(name=started.name)))
    first = await next_of(stream, "input_request")
    waiting = (await replicas.ask(0, "GetInvocation", pb.GetInvocationRequest(name=started.name))).invocation
    assert waiting.input_request == first
    runner = int(waiting.executor_id[-1])
    stream.cancel()
    await replicas.stop(runner)
    other = 1 - runner
    stream = replicas.stream(other)
    await stream.write(pb.StreamInvocationRequest(attach=pb.AttachInvocation(name=started.name)))
    assert await next_of(stream, "input_request") == first
    second = await next_of(stream, "input_request")
    assert (second.message, second.input_id != first.input_id) == (first.message, True)
    for input_id, reason in ((first.input_id, Reason.FAILED_PRECONDITION), (second.input_id, None)):
        given = pb.InvocationInput(input_id=input_id, content=b'{"n": 3}')
        answer = replicas.ask(other, "ResumeInvocation", pb.ResumeInvocationRequest(name=started.name, input=given))
        assert (await refusal(answer) if reason else await answer) is not None
    assert (await next_of(stream, "ended")).state == SUCCEEDED
