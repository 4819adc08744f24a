"""How streams end when the process does."""

from __future__ import annotations

import asyncio

from toolmesh.audit.v1 import audit_service_pb2 as pb

from libs.common.errors import Reason
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
