"""What is remembered of the log: the same as the database would say, or nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from libs.common.runtime.clock import SystemClock
from libs.common.sql.engine import engine_for
from services.audit.adapters.log.reader import PostgresReader
from services.audit.adapters.log.writer import PostgresWriter
from services.audit.convert.log import RecordScribe
from services.audit.domain.evidence.model import Erasure, Requester, ShardLimits
from services.audit.domain.log.append_buffer import Recent, RecentReader
from services.audit.domain.merkle.merkle import leaf_hash
from services.audit.domain.model import Entry, LoggedRecord, Page, RecordFilter, Span, Stored, TreeHead, weight_of
from services.audit.tests.conftest import a_writer
from services.audit.tests.sample import an_entry

EVERYTHING = RecordFilter()
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def a_commit(first: int, count: int = 2, entry: Entry | None = None) -> Stored:
    entries = [entry or an_entry() for _ in range(count)]
    leaves = [leaf_hash(each.canonical) for each in entries]
    return Stored("a-log", 0, first, NOW, entries, leaves, weight_of(entries))


def places(recent: Recent, first: int, end: int) -> list[int]:
    return [stored.first_sequence + place for stored, part in recent.between(first, end) for place in part]


def test_what_lies_side_by_side_is_held() -> None:
    recent = Recent()
    assert not recent.holds(0, 0)
    for first in (4, 6, 8):
        recent.appended(a_commit(first))
    assert recent.holds(4, 10)
    assert recent.holds(5, 7)
    assert not recent.holds(3, 10)
    assert not recent.holds(4, 11)
    assert places(recent, 5, 9) == [5, 6, 7, 8]


def test_a_gap_lets_go_of_everything_before_it() -> None:
    recent = Recent()
    recent.appended(a_commit(0))
    recent.appended(a_commit(3))
    assert not recent.holds(0, 2)
    assert recent.holds(3, 5)
    assert places(recent, 0, 9) == [3, 4]


def test_the_oldest_goes_when_too_much_is_held() -> None:
    entry = an_entry()
    recent = Recent(weight=5 * len(entry.canonical))
    for first in range(0, 20, 2):
        recent.appended(a_commit(first, entry=entry))
    assert recent.holds(16, 20)
    assert not recent.holds(15, 20)


def test_one_commit_that_is_too_much_is_not_held() -> None:
    recent = Recent(weight=10)
    recent.appended(a_commit(0))
    assert not recent.holds(0, 1)
    recent.appended(a_commit(2, count=1))
    assert not recent.holds(2, 3)


@dataclass
class AskedReader:
    """Notes whether it was asked for a page."""

    asked: int = 0

    async def head(self) -> TreeHead:
        raise AssertionError("only pages are asked for here")

    async def by_sequence(self, log_id: str, sequence: int) -> LoggedRecord | None:
        raise AssertionError("only pages are asked for here")

    async def by_record_id(self, record_id: str) -> LoggedRecord | None:
        raise AssertionError("only pages are asked for here")

    async def page(self, wanted: RecordFilter, span: Span, limit: int) -> Page:
        self.asked += 1
        return Page([], more=False)


@pytest.mark.parametrize(
    ("wanted", "span"),
    [
        (EVERYTHING, Span(3, 8, ascending=True)),
        (EVERYTHING, Span(4, 9, ascending=True)),
        (EVERYTHING, Span(4, 8, ascending=False)),
        (RecordFilter(subject="did:web:alice"), Span(4, 8, ascending=True)),
    ],
    ids=["before", "behind", "backwards", "filtered"],
)
async def test_what_is_not_all_here_is_asked_for(wanted: RecordFilter, span: Span) -> None:
    asked, recent = AskedReader(), Recent()
    recent.appended(a_commit(4, count=4))
    reader = RecentReader(asked, recent)
    await reader.page(wanted, span, 100)
    assert asked.asked == 1
    await reader.page(EVERYTHING, Span(4, 8, ascending=True), 100)
    assert asked.asked == 1


async def test_a_page_ends_with_its_limit_and_with_its_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    recent, entry = Recent(), an_entry()
    recent.appended(a_commit(0, count=6, entry=entry))
    reader, span = RecentReader(AskedReader(), recent), Span(0, 6, ascending=True)
    page = await reader.page(EVERYTHING, span, 4)
    assert ([each.sequence for each in page.records], page.more) == ([0, 1, 2, 3], True)
    monkeypatch.setattr("services.audit.domain.log.append_buffer.PAGE_BYTES", len(entry.canonical) + 1)
    page = await reader.page(EVERYTHING, span, 100)
    assert ([each.sequence for each in page.records], page.more) == ([0, 1], True)
    page = await reader.page(EVERYTHING, Span(4, 6, ascending=True), 100)
    assert ([each.sequence for each in page.records], page.more) == ([4, 5], False)


@dataclass
class Log:
    """A log in a real database, with what its writer would remember."""

    writer: PostgresWriter
    reader: PostgresReader
    recent: Recent

    async def append(self, *entries: Entry) -> None:
        appended = await self.writer.append(entries)
        if appended.stored is not None:
            self.recent.appended(appended.stored)

    async def both(self, first: int) -> tuple[Page, Page]:
        """Return the rest of the log, as it is remembered and as it is."""
        span = Span(first, (await self.reader.head()).size, ascending=True)
        remembered = await RecentReader(self.reader, self.recent).page(EVERYTHING, span, 100)
        return remembered, await self.reader.page(EVERYTHING, span, 100)


@pytest.fixture
async def log(log_url: str) -> AsyncIterator[Log]:
    engine, writer = engine_for(log_url, schema="audit"), a_writer(log_url, ShardLimits(5, 10**9))
    await writer.start()
    yield Log(writer, PostgresReader(engine), Recent())
    await writer.stop()
    await engine.dispose()


async def test_what_is_remembered_is_what_the_database_holds(log: Log) -> None:
    again = an_entry()
    await log.append(an_entry(), again)
    await log.append(again, an_entry())
    assert log.recent.holds(0, 3)
    remembered, stored = await log.both(0)
    assert len(stored.records) == 3
    assert remembered == stored


async def test_the_record_that_opens_a_shard_is_not_passed_over(log: Log) -> None:
    for _ in range(4):
        await log.append(an_entry(), an_entry())
    remembered, stored = await log.both(0)
    assert [each.shard for each in stored.records] == [0] * 6 + [1] * 3
    assert remembered == stored


async def test_a_payload_that_was_erased_is_not_remembered(log: Log) -> None:
    await log.append(an_entry(), an_entry())
    _, before = await log.both(0)
    erasure = Erasure(0, before.records[0].leaf_hash, "asked for")
    assert log.recent.holds(0, 2)
    await log.writer.erase_payload(RecordScribe(SystemClock()).payload_erased(erasure, Requester("operator")))
    for _ in range(2):
        remembered, stored = await log.both(0)
        assert stored.records[0].canonical == b""
        assert remembered == stored
        await log.append(an_entry())
