"""Calls whose evidence goes over a real stream to a log that withholds, breaks or is slow."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from toolmesh.audit.v1 import audit_record_pb2 as rpb

from libs.common.errors import Reason
from libs.common.telemetry.log import Log
from services.executor.adapters.audit.durable_trail import DurableTrail
from services.executor.adapters.audit.record_encoder import RecordEncoder
from services.executor.adapters.audit.stream import AuditStream
from services.executor.domain.phases.supervise import InFlight
from services.executor.domain.tool import Tool
from services.executor.tests.fakes import ClosedOutbox, World, never_ends
from services.executor.tests.peers import AuditPeer
from services.executor.tests.samples import a_request, a_tool, a_write_tool
from services.executor.tests.waiting import until

MakeWorld = Callable[..., World]


@pytest.fixture
async def world_with(audit: AuditPeer, reach: Callable[..., Any], quiet: Log) -> AsyncIterator[MakeWorld]:
    """Return a factory: everything is fake but the way to the log."""
    channel = await reach("audit", audit.address)
    streams: list[DurableTrail] = []
    sink = os.open(os.devnull, os.O_WRONLY)

    def make(tool: Tool | None = None, *, audit_wait: float = 20.0) -> World:
        def trail(in_flight: InFlight) -> DurableTrail:
            stream = AuditStream(channel, RecordEncoder("e-0"), quiet, active=lambda: in_flight.count)
            streams.append(DurableTrail(stream, ClosedOutbox(), Log("executor", descriptor=sink)))  # type: ignore[arg-type]
            return streams[-1]

        return World(tool, audit_wait=audit_wait, audit=trail)

    yield make
    for stream in streams:
        await stream.stop()
    os.close(sink)


async def started(world: World) -> World:
    await world.ports.audit.start()  # type: ignore[attr-defined]
    return world


async def test_nothing_runs_while_the_log_withholds_its_word(world_with: MakeWorld, audit: AuditPeer) -> None:
    world = await started(world_with(audit_wait=0.1))
    audit.acknowledging.clear()
    error = await world.failure(a_request())
    assert error.reason is Reason.AUDIT_UNAVAILABLE
    assert world.runner.calls == []
    audit.acknowledging.set()
    await until(lambda: len(audit.records) == 2)
    decided, ended = audit.about(error.invocation_id)
    assert (ended.follows, ended.attempt, ended.state) == (decided.record_id, 0, "failed")


async def test_the_result_stays_here_while_the_log_withholds_its_word_about_the_outcome(
    world_with: MakeWorld, audit: AuditPeer
) -> None:
    world = await started(world_with(audit_wait=0.1))

    async def log_falls_silent(arguments: dict[str, Any]) -> Any:
        audit.acknowledging.clear()
        return {"said": "x"}

    world.runner.behave = log_falls_silent
    error = await world.failure(a_request())
    assert (error.reason, error.metadata["tool_ran"]) == (Reason.AUDIT_UNAVAILABLE, "true")
    assert error.invocation_id
    assert len(world.runner.calls) == 1
    audit.acknowledging.set()
    await until(lambda: len(audit.about(error.invocation_id)) == 2)
    assert audit.records[-1].event_class == rpb.EVENT_CLASS_INVOCATION_SUCCEEDED


async def test_a_stream_that_breaks_in_the_middle_of_a_call_costs_it_nothing(
    world_with: MakeWorld, audit: AuditPeer
) -> None:
    world = await started(world_with())

    async def log_breaks(arguments: dict[str, Any]) -> Any:
        audit.breaks_before_ack = 2
        return {"said": "x"}

    world.runner.behave = log_breaks
    result = await world.invoke.execute(a_request())
    assert audit.streams == 3
    assert [f"records/{record}" for record in audit.ids] == list(result.evidence)
    assert len(world.runner.calls) == 1


async def test_a_tool_that_is_stopped_by_its_limit_is_on_record(world_with: MakeWorld, audit: AuditPeer) -> None:
    world = await started(world_with(a_tool(own_limit=0.05)))
    world.runner.behave = never_ends
    error = await world.failure(a_request())
    assert error.reason is Reason.TOOL_TIMEOUT
    assert world.runner.stopped.is_set()
    _, ended = audit.about(error.invocation_id)
    assert (ended.event_class, ended.status) == (rpb.EVENT_CLASS_INVOCATION_TIMED_OUT, rpb.RECORD_STATUS_TIMEOUT)


async def test_many_calls_at_once_leave_two_records_each(world_with: MakeWorld, audit: AuditPeer) -> None:
    world = await started(world_with())
    results = await asyncio.gather(*(world.invoke.execute(a_request()) for _ in range(100)))
    assert sorted(ref for result in results for ref in result.evidence) == sorted(f"records/{i}" for i in audit.ids)
    assert len(audit.records) == 200
    assert len(audit.batches) < 100


async def test_a_write_whose_outcome_was_not_confirmed_is_not_repeated_by_a_retry(
    world_with: MakeWorld, audit: AuditPeer
) -> None:
    world = await started(world_with(a_write_tool(), audit_wait=0.1))

    async def log_falls_silent(arguments: dict[str, Any]) -> Any:
        audit.acknowledging.clear()
        return {"said": "x"}

    world.runner.behave = log_falls_silent
    await world.failure(a_request(idempotency_key="k"))
    audit.acknowledging.set()
    result = await world.invoke.execute(a_request(idempotency_key="k"))
    assert result.replayed
    assert len(world.runner.calls) == 1
