"""The append buffer serves the same records as the database, or none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from libs.common.runtime.clock import SystemClock
from libs.common.sql.engine import engine_for
from services.audit.adapters.log.reader import PostgresReader
from services.audit.adapters.log.writer import PostgresWriter
from services.audit.convert.log import ProtoSelfRecorder
from services.audit.domain.evidence.model import Erasure, Requester, ShardLimits
from services.audit.domain.log.append_buffer import AppendBuffer, AppendBufferReader
from services.audit.domain.merkle.merkle import leaf_hash
from services.audit.domain.model import (
    Commit,
    Entry,
    LoggedRecord,
    Page,
    RecordFilter,
    Span,
    TreeHead,
    payload_bytes_of,
)
from services.audit.tests.conftest import a_writer
from services.audit.tests.sample import an_entry

EVERYTHING = RecordFilter()
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def a_commit(first: int, count: int = 2, entry: Entry | None = None) -> Commit:
    entries = [entry or an_entry() for _ in range(count)]
    leaves = [leaf_hash(each.canonical) for each in entries]
    return Commit("a-log", 0, first, NOW, entries, leaves, payload_bytes_of(entries))


def sequences(buffer: AppendBuffer, first: int, end: int) -> list[int]:
    return [commit.first_sequence + index for commit, indexes in buffer.slices(first, end) for index in indexes]


def test_contiguous_commits_are_buffered() -> None:
    buffer = AppendBuffer()
    assert not buffer.covers(0, 0)
    for first in (4, 6, 8):
        buffer.add(a_commit(first))
    assert buffer.covers(4, 10)
    assert buffer.covers(5, 7)
    assert not buffer.covers(3, 10)
    assert not buffer.covers(4, 11)
    assert sequences(buffer, 5, 9) == [5, 6, 7, 8]


def test_a_gap_evicts_everything_before_it() -> None:
    buffer = AppendBuffer()
    buffer.add(a_commit(0))
    buffer.add(a_commit(3))
    assert not buffer.covers(0, 2)
    assert buffer.covers(3, 5)
    assert sequences(buffer, 0, 9) == [3, 4]


def test_the_oldest_commits_are_evicted_over_the_limit() -> None:
    entry = an_entry()
    buffer = AppendBuffer(max_bytes=5 * len(entry.canonical))
    for first in range(0, 20, 2):
        buffer.add(a_commit(first, entry=entry))
    assert buffer.covers(16, 20)
    assert not buffer.covers(15, 20)


def test_a_commit_larger_than_the_buffer_is_not_kept() -> None:
    buffer = AppendBuffer(max_bytes=10)
    buffer.add(a_commit(0))
    assert not buffer.covers(0, 1)
    buffer.add(a_commit(2, count=1))
    assert not buffer.covers(2, 3)


@dataclass
class CountingReader:
    """Counts the pages that it is asked for."""

    pages: int = 0

    async def head(self) -> TreeHead:
        raise AssertionError("only pages are asked for here")

    async def get_by_sequence(self, log_id: str, sequence: int) -> LoggedRecord | None:
        raise AssertionError("only pages are asked for here")

    async def get_by_record_id(self, record_id: str) -> LoggedRecord | None:
        raise AssertionError("only pages are asked for here")

    async def page(self, record_filter: RecordFilter, span: Span, limit: int) -> Page:
        self.pages += 1
        return Page([], more=False)


@pytest.mark.parametrize(
    ("record_filter", "span"),
    [
        (EVERYTHING, Span(3, 8, ascending=True)),
        (EVERYTHING, Span(4, 9, ascending=True)),
        (EVERYTHING, Span(4, 8, ascending=False)),
        (RecordFilter(subject="did:web:alice"), Span(3, 8, ascending=True)),
    ],
    ids=["before", "behind", "backwards", "filtered"],
)
async def test_a_span_outside_the_buffer_is_read_from_the_log(record_filter: RecordFilter, span: Span) -> None:
    fallback, buffer = CountingReader(), AppendBuffer()
    buffer.add(a_commit(4, count=4))
    reader = AppendBufferReader(fallback, buffer)
    await reader.page(record_filter, span, 100)
    assert fallback.pages == 1
    await reader.page(EVERYTHING, Span(4, 8, ascending=True), 100)
    assert fallback.pages == 1


async def test_a_buffered_page_ends_at_its_limit_and_at_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer, entry = AppendBuffer(), an_entry()
    buffer.add(a_commit(0, count=6, entry=entry))
    reader, span = AppendBufferReader(CountingReader(), buffer), Span(0, 6, ascending=True)
    page = await reader.page(EVERYTHING, span, 4)
    assert ([each.sequence for each in page.records], page.more) == ([0, 1, 2, 3], True)
    monkeypatch.setattr("services.audit.domain.log.append_buffer.PAGE_BYTES", len(entry.canonical) + 1)
    page = await reader.page(EVERYTHING, span, 100)
    assert ([each.sequence for each in page.records], page.more) == ([0, 1], True)
    page = await reader.page(EVERYTHING, Span(4, 6, ascending=True), 100)
    assert ([each.sequence for each in page.records], page.more) == ([4, 5], False)


@dataclass
class Log:
    """A log in a real database, with an append buffer."""

    writer: PostgresWriter
    reader: PostgresReader
    buffer: AppendBuffer

    async def append(self, *entries: Entry) -> None:
        appended = await self.writer.append(entries)
        if appended.commit is not None:
            self.buffer.add(appended.commit)

    async def read_both(self, first: int) -> tuple[Page, Page]:
        """Return the rest of the log from the buffer and from the database."""
        span = Span(first, (await self.reader.head()).size, ascending=True)
        buffered = await AppendBufferReader(self.reader, self.buffer).page(EVERYTHING, span, 100)
        return buffered, await self.reader.page(EVERYTHING, span, 100)


@pytest.fixture
async def log(log_url: str) -> AsyncIterator[Log]:
    engine, writer = engine_for(log_url, schema="audit"), a_writer(log_url, ShardLimits(5, 10**9))
    await writer.start()
    yield Log(writer, PostgresReader(engine), AppendBuffer())
    await writer.stop()
    await engine.dispose()


async def test_the_buffer_returns_what_the_database_returns(log: Log) -> None:
    again = an_entry()
    await log.append(an_entry(), again)
    await log.append(again, an_entry())
    assert log.buffer.covers(0, 3)
    buffered, stored = await log.read_both(0)
    assert len(stored.records) == 3
    assert buffered == stored


async def test_the_record_that_opens_a_shard_is_not_skipped(log: Log) -> None:
    for _ in range(4):
        await log.append(an_entry(), an_entry())
    buffered, stored = await log.read_both(0)
    assert [each.shard for each in stored.records] == [0] * 6 + [1] * 3
    assert buffered == stored


async def test_an_erased_payload_is_not_served_from_the_buffer(log: Log) -> None:
    await log.append(an_entry(), an_entry())
    _, before = await log.read_both(0)
    erasure = Erasure(0, before.records[0].leaf_hash, "asked for")
    assert log.buffer.covers(0, 2)
    await log.writer.erase_payload(
        ProtoSelfRecorder(SystemClock()).record_payload_erased(erasure, Requester("operator"))
    )
    for _ in range(2):
        buffered, stored = await log.read_both(0)
        assert stored.records[0].canonical == b""
        assert buffered == stored
        await log.append(an_entry())
