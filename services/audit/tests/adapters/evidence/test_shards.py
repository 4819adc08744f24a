"""How the log is cut into shards, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta

import orjson
import psycopg
import pytest

from libs.common.errors import MeshError, Reason
from libs.common.testing.clock import ManualClock
from services.audit.adapters.log.writer import PostgresWriter
from services.audit.domain.evidence.model import ShardLimits
from services.audit.domain.model import Entry
from services.audit.tests.conftest import NEVER, a_writer
from services.audit.tests.database import check_shards, sql
from services.audit.tests.sample import an_entry, stamp
from tests.fixtures import owners_url

Writers = Callable[..., Awaitable[PostgresWriter]]


@pytest.fixture
async def writers(log_url: str) -> AsyncIterator[Writers]:
    started: list[PostgresWriter] = []

    async def start(limits: ShardLimits = NEVER, clock: ManualClock | None = None) -> PostgresWriter:
        started.append(a_writer(log_url, limits, clock))
        await started[-1].start()
        return started[-1]

    yield start
    for writer in started:
        await writer.stop()


def entries(count: int) -> list[Entry]:
    return [an_entry() for _ in range(count)]


def old_entry(age: timedelta) -> Entry:
    return an_entry(event_time=stamp(datetime.now(UTC) - age))


async def test_a_full_shard_is_closed_with_the_next_commit_and_the_next_one_names_it(
    log_url: str, writers: Writers
) -> None:
    writer = await writers(ShardLimits(records=3, seconds=10**9))
    assert (await writer.append(entries(2))).sequences == [0, 1]
    assert (await writer.append(entries(2))).sequences == [2, 3]
    later = await writer.append(entries(2))
    # Between the two lies the record that opens the shard.
    assert (later.sequences, later.added, later.size) == ([5, 6], 2, 7)
    assert check_shards(log_url) == [range(4), range(4, 7)]
    assert (await writer.append(entries(1))).sequences == [8]
    assert check_shards(log_url) == [range(4), range(4, 7), range(7, 9)]


async def test_an_old_shard_is_closed_with_the_next_commit(log_url: str, writers: Writers) -> None:
    [(opened,)] = sql(log_url, "select open_time from tree_head")
    clock = ManualClock(opened)
    writer = await writers(ShardLimits(records=10**9, seconds=60), clock)
    await writer.append(entries(2))
    clock.advance(50)
    await writer.append(entries(1))
    assert check_shards(log_url) == [range(3)]
    clock.advance(20)
    await writer.append(entries(1))
    assert check_shards(log_url) == [range(3), range(3, 5)]


async def test_close_shard_closes_only_the_open_shard(log_url: str, writers: Writers) -> None:
    writer = await writers()
    with pytest.raises(MeshError) as empty:
        await writer.close_shard(0)
    await writer.append(entries(2))
    assert await writer.close_shard(0) == 2
    with pytest.raises(MeshError) as moved:
        await writer.close_shard(0)
    assert (await writer.append(entries(1))).sequences == [3]
    assert check_shards(log_url) == [range(2), range(2, 4)]
    assert {caught.value.reason for caught in (empty, moved)} == {Reason.FAILED_PRECONDITION}
    assert (empty.value.metadata["condition"], moved.value.metadata["condition"]) == ("shard_empty", "shard_moved")


async def test_the_first_record_of_a_shard_is_of_the_logs_own_hand(log_url: str, writers: Writers) -> None:
    writer = await writers()
    await writer.append(entries(1))
    await writer.close_shard(0)
    [(payload,)] = sql(log_url, "select canonical from records where sequence = 1")
    form = orjson.loads(payload)
    assert (form["event_class"], form["writer"]) == ("shard_opened", "audit")


async def test_a_shard_that_was_closed_by_another_replica_is_left_behind(log_url: str, writers: Writers) -> None:
    one, other = await writers(), await writers()
    await one.append(entries(2))
    await other.close_shard(0)
    assert (await one.append(entries(1))).sequences == [3]
    assert check_shards(log_url) == [range(2), range(2, 4)]


async def test_replicas_that_close_shards_at_the_same_time_leave_one_chain(log_url: str, writers: Writers) -> None:
    limits = ShardLimits(records=7, seconds=10**9)
    shared = entries(10)

    async def write(writer: PostgresWriter) -> None:
        for place in range(20):
            await writer.append([an_entry(), shared[place % 10], an_entry()])

    await asyncio.gather(*[write(await writers(limits)) for _ in range(3)])
    shards = check_shards(log_url)
    assert len(shards) > 10
    [(ids, distinct)] = sql(log_url, "select count(record_id), count(distinct record_id) from records")
    assert ids == distinct == 3 * 40 + 10 + len(shards) - 1


async def test_a_record_id_is_stored_once_whichever_shard_has_it(log_url: str, writers: Writers) -> None:
    writer = await writers()
    first, second = an_entry(), old_entry(timedelta(days=3))
    await writer.append([first])
    await writer.close_shard(0)
    await writer.append([second])
    await writer.close_shard(1)
    again = await writer.append([first, an_entry(), second, first])
    assert (again.sequences, again.added) == ([0, 4, 2, 0], 1)
    nothing_new = await writer.append([second, first])
    assert (nothing_new.sequences, nothing_new.added, nothing_new.size) == ([2, 0], 0, 5)
    check_shards(log_url)


async def test_a_writer_that_lost_the_race_finds_a_record_id_in_an_older_shard(log_url: str, writers: Writers) -> None:
    one, other = await writers(), await writers()
    entry = an_entry()
    await other.append(entries(1))
    await one.append([entry])
    await one.close_shard(0)
    late = await other.append([entry, an_entry()])
    assert (late.sequences, late.added) == ([1, 3], 1)
    check_shards(log_url)


async def test_older_shards_are_asked_only_about_what_they_can_hold(
    log_url: str, writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = await writers()
    await writer.append(entries(1))
    await writer.close_shard(0)
    asked: list[str] = []
    execute = psycopg.Connection.execute

    def noted(self: psycopg.Connection, query: str, *parts: object, **named: object) -> object:
        asked.append(query)
        return execute(self, query, *parts, **named)  # type: ignore[arg-type, call-overload]

    monkeypatch.setattr(psycopg.Connection, "execute", noted)
    tomorrow = an_entry(event_time=stamp(datetime.now(UTC) + timedelta(days=1)))
    await writer.append([tomorrow])
    assert asked == []
    await writer.append([an_entry()])
    assert len(asked) == 1


async def test_a_moment_before_all_shards_can_be_asked_about(writers: Writers) -> None:
    writer = await writers()
    await writer.append(entries(1))
    await writer.close_shard(0)
    dawn = an_entry(event_time=stamp(datetime(1, 1, 1, tzinfo=UTC)))
    assert (await writer.append([dawn])).sequences == [2]


async def test_nothing_can_be_added_to_a_sealed_shard(log_url: str, writers: Writers) -> None:
    writer = await writers()
    await writer.append(entries(2))
    await writer.close_shard(0)
    assert sql(log_url, "select seal_shard(1)") == [(False,)]
    assert sql(log_url, "select seal_shard(0), seal_shard(0)") == [(True, True)]
    forged = """
        insert into records (shard, sequence, record_id, canonical, leaf_hash, event_time)
        select 0, {place}, 'forged', canonical, leaf_hash, event_time from records where sequence = 0
    """
    for place in (0, 1, 2, 99):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            sql(log_url, forged.format(place=place))
        with pytest.raises((psycopg.errors.CheckViolation, psycopg.errors.UniqueViolation)):
            sql(owners_url(log_url), forged.format(place=place))
    check_shards(log_url)


async def test_subtrees_are_stored_by_the_commit_that_completes_them(log_url: str, writers: Writers) -> None:
    writer = await writers()
    for count in (255, 1, 300, 256):
        await writer.append(entries(count))
    rows = sql(log_url, "select level, place from subtrees order by place")
    assert rows == [(8, 0), (8, 1), (8, 2)]
    await writer.close_shard(0)
    await writer.append(entries(255))
    assert sql(log_url, "select shard, level, place from subtrees where shard = 1") == [(1, 8, 0)]
