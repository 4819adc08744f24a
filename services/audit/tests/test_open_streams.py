"""How streams end at shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from toolmesh.audit.v1 import audit_service_pb2 as pb

from libs.common.errors import MeshError, Reason
from services.audit.open_streams import OpenStreams
from services.audit.tests.database import head_locked, writer_waits
from services.audit.tests.replicas import Start, answer, reason_of
from services.audit.tests.sample import a_record
from tests.harness.stores import wait_until


async def test_open_streams_end_with_the_process_and_say_so(start: Start) -> None:
    audit = await start()
    watch = audit.stub("operator").WatchRecords(pb.WatchRecordsRequest(from_sequence=-1))
    await watch.initial_metadata()
    writing = audit.stub("executor").AppendRecords()
    await writing.write(pb.AppendRecordsRequest(batch=1, records=[a_record()]))
    await answer(writing)
    assert (await answer(watch)).record.sequence == 0
    stopping = asyncio.ensure_future(audit.end())
    assert await reason_of(answer(watch)) is Reason.SERVICE_UNAVAILABLE
    assert await reason_of(answer(writing)) is Reason.SERVICE_UNAVAILABLE
    await stopping


async def test_a_batch_that_was_taken_is_acknowledged_although_the_process_ends(start: Start) -> None:
    audit = await start()
    writing = audit.stub("executor").AppendRecords()
    with head_locked(audit.url):
        await writing.write(pb.AppendRecordsRequest(batch=1, records=[a_record()]))
        await asyncio.to_thread(wait_until, lambda: writer_waits(audit.url), "the commit's wait for the head")
        stopping = asyncio.ensure_future(audit.end())
        await asyncio.sleep(0)
    assert (await answer(writing)).last_sequence == 0
    assert await reason_of(answer(writing)) is Reason.SERVICE_UNAVAILABLE
    await stopping


async def one_item_then_nothing(waits: asyncio.Event) -> AsyncIterator[int]:
    yield 1
    waits.set()
    await asyncio.Event().wait()


async def waiting_stream(streams: OpenStreams) -> asyncio.Task[None]:
    """Return a stream that has had its item and waits for another."""
    waits = asyncio.Event()

    async def take() -> None:
        async for _ in streams.until_closed(one_item_then_nothing(waits)):
            pass

    task = asyncio.ensure_future(take())
    await waits.wait()
    return task


async def test_an_idle_stream_ends_with_service_unavailable_at_shutdown() -> None:
    streams = OpenStreams()
    task = await waiting_stream(streams)
    streams.close()
    with pytest.raises(MeshError) as caught:
        await asyncio.wait_for(task, 60)
    assert caught.value.reason is Reason.SERVICE_UNAVAILABLE
    with pytest.raises(MeshError):
        await anext(aiter(streams.until_closed(one_item_then_nothing(asyncio.Event()))))


async def test_a_canceled_stream_stays_canceled_at_shutdown() -> None:
    streams = OpenStreams()
    before, meanwhile = await waiting_stream(streams), await waiting_stream(streams)
    before.cancel()
    await asyncio.wait([before], timeout=60)
    meanwhile.cancel()
    streams.close()
    await asyncio.wait([meanwhile], timeout=60)
    assert before.cancelled()
    assert meanwhile.cancelled()


async def test_a_busy_stream_finishes_its_item_before_it_ends() -> None:
    streams, working, finish, done = OpenStreams(), asyncio.Event(), asyncio.Event(), []

    async def work() -> None:
        async for item in streams.until_closed(one_item_then_nothing(asyncio.Event())):
            working.set()
            await finish.wait()
            done.append(item)

    task = asyncio.ensure_future(work())
    await working.wait()
    streams.close()
    finish.set()
    with pytest.raises(MeshError):
        await asyncio.wait_for(task, 60)
    assert done == [1]
