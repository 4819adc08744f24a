"""WatchRecords through the service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from toolmesh.audit.v1 import audit_service_pb2 as pb

from services.audit.adapters.log.reader import PostgresReader
from services.audit.domain.log.shared_head import SharedHead
from services.audit.domain.log.tail import Tail
from services.audit.domain.log.watch_records import WatchRecords
from services.audit.domain.merkle.merkle import CompactRange
from services.audit.domain.model import LoggedRecord, Page, RecordFilter, Span, TreeHead
from services.audit.tests.replicas import Replica, Start, append, take
from services.audit.tests.sample import a_record


async def test_a_watch_sends_what_is_there_and_then_what_comes(audit: Replica) -> None:
    await audit.append(*(a_record() for _ in range(3)))
    watch = audit.stub("operator").WatchRecords(pb.WatchRecordsRequest(from_sequence=1))
    assert [logged.sequence for logged in await take(watch, 2)] == [1, 2]
    await audit.append(a_record(), a_record())
    assert [logged.sequence for logged in await take(watch, 2)] == [3, 4]
    watch.cancel()


async def test_a_watch_sends_all_of_a_long_log(audit: Replica) -> None:
    await audit.append(*(a_record() for _ in range(450)))
    watch = audit.stub("operator").WatchRecords(pb.WatchRecordsRequest())
    assert [logged.sequence for logged in await take(watch, 450)] == list(range(450))
    watch.cancel()


async def test_a_watch_resumes_without_gap_or_repetition_while_others_append(audit: Replica) -> None:
    async def write() -> None:
        await append(audit.stub("executor"), [[a_record(), a_record()] for _ in range(100)])

    writing = [asyncio.ensure_future(write()) for _ in range(3)]
    seen: list[int] = []
    operator = audit.stub("operator")
    while len(seen) < 600:
        watch = operator.WatchRecords(pb.WatchRecordsRequest(from_sequence=len(seen)))
        seen += [logged.sequence for logged in await take(watch, min(70, 600 - len(seen)))]
        watch.cancel()
    await asyncio.gather(*writing)
    assert seen == list(range(600))


async def test_a_watch_can_begin_with_the_next_record(audit: Replica) -> None:
    await audit.append(a_record())
    watch = audit.stub("operator").WatchRecords(pb.WatchRecordsRequest(from_sequence=-1))
    await watch.initial_metadata()
    await audit.append(a_record())
    [logged] = await take(watch, 1)
    assert logged.sequence == 1
    watch.cancel()


async def test_a_watch_passes_over_what_does_not_match(audit: Replica) -> None:
    await audit.append(*(a_record(trace_id=("a" if index % 100 == 7 else "b") * 32) for index in range(450)))
    wanted = pb.RecordFilter(trace_id="a" * 32)
    watch = audit.stub("operator").WatchRecords(pb.WatchRecordsRequest(filter=wanted))
    assert [logged.sequence for logged in await take(watch, 5)] == [7, 107, 207, 307, 407]
    await audit.append(a_record(), a_record(trace_id="a" * 32))
    assert [logged.sequence for logged in await take(watch, 1)] == [451]
    watch.cancel()


class ListLog:
    """A log in memory."""

    def __init__(self) -> None:
        self.size = 0

    async def head(self) -> TreeHead:
        return TreeHead("log", CompactRange().extend([b""] * self.size))

    async def page(self, record_filter: RecordFilter, span: Span, limit: int) -> Page:
        sequences = range(span.first, min(span.end, span.first + limit))
        records = [LoggedRecord("log", sequence, b"", b"", datetime.now(UTC)) for sequence in sequences]
        return Page(records, more=span.first + limit < span.end)

    async def get_by_sequence(self, log_id: str, sequence: int) -> LoggedRecord | None:
        return LoggedRecord("log", sequence, b"", b"", datetime.now(UTC)) if sequence < self.size else None

    async def get_by_record_id(self, record_id: str) -> LoggedRecord | None:
        return None


async def _next(records: AsyncIterator[LoggedRecord]) -> LoggedRecord:
    return await anext(records)


async def test_a_commit_of_this_process_wakes_a_watch_that_would_not_look_for_an_hour() -> None:
    log, tail = ListLog(), Tail()
    shards: Any = None  # all of the list is in the open one
    records = WatchRecords(log, shards, tail, SharedHead(log, min_interval=0), poll=3600).follow(0, RecordFilter())
    for size in (1, 2, 5):
        waiting = asyncio.ensure_future(_next(records))
        await asyncio.sleep(0)
        first, log.size = log.size, size
        tail.advance(size)
        seen = [await asyncio.wait_for(waiting, 60)] + [await anext(records) for _ in range(first + 1, size)]
        assert [logged.sequence for logged in seen] == list(range(first, size))


async def test_a_watch_sees_what_another_replica_appends(start: Start) -> None:
    here, there = await start(), await start()
    watch = here.stub("operator").WatchRecords(pb.WatchRecordsRequest())
    await there.append(a_record())
    await here.append(a_record())
    await there.append(a_record())
    assert [logged.sequence for logged in await take(watch, 3)] == [0, 1, 2]
    watch.cancel()


async def test_many_watches_share_the_reads_of_the_head_and_new_records_come_from_memory(
    monkeypatch: pytest.MonkeyPatch, audit: Replica
) -> None:
    reads: list[str] = []
    for name in ("head", "page"):
        monkeypatch.setattr(PostgresReader, name, counted(getattr(PostgresReader, name), reads))
    stub = audit.stub("operator")
    watches = [stub.WatchRecords(pb.WatchRecordsRequest(from_sequence=-1)) for _ in range(100)]
    for watch in watches:
        await watch.initial_metadata()
    reads.clear()
    await audit.append(a_record())
    assert [[logged.sequence for logged in await take(watch, 1)] for watch in watches] == [[0]] * 100
    for watch in watches:
        watch.cancel()
    # The relay and the counting read for themselves, a few times.
    assert reads.count("page") < 20


def counted(method: Any, reads: list[str]) -> Any:
    async def read(*arguments: Any) -> Any:
        reads.append(method.__name__)
        return await method(*arguments)

    return read
