"""The writer on a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import psycopg
import pytest
from toolmesh.common.v1 import caller_pb2

from libs.common.errors import MeshError, Reason
from services.audit.adapters.log.async_pq import PreparedConnection
from services.audit.adapters.log.commit import connect
from services.audit.adapters.log.writer import PostgresWriter
from services.audit.domain.errors import RecordIdTakenError
from services.audit.domain.merkle.merkle import leaf_hash
from services.audit.tests.conftest import a_writer
from services.audit.tests.database import check_log, check_shards, head_locked, kill_writers, sql, writer_waits
from services.audit.tests.sample import an_entry
from tests.fixtures import owners_url
from tests.harness.stores import wait_until

Writers = Callable[[], Awaitable[PostgresWriter]]


@pytest.fixture
async def writers(log_url: str) -> AsyncIterator[Writers]:
    started: list[PostgresWriter] = []

    async def start() -> PostgresWriter:
        started.append(a_writer(log_url))
        await started[-1].start()
        return started[-1]

    yield start
    for writer in started:
        await writer.stop()


async def failure(appending: Awaitable[Any]) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await appending
    return caught.value


async def test_entries_are_stored_in_their_order(log_url: str, writers: Writers) -> None:
    writer = await writers()
    entries = [an_entry() for _ in range(5)]
    first = await writer.append(entries[:2])
    second = await writer.append(entries[2:])
    assert (first.sequences, first.added, first.size) == ([0, 1], 2, 2)
    assert (second.sequences, second.added, second.size) == ([2, 3, 4], 3, 5)
    assert check_log(log_url, 5) == [entry.record_id for entry in entries]


async def test_a_record_id_is_stored_once_and_keeps_its_place(log_url: str, writers: Writers) -> None:
    writer = await writers()
    a, b, c = an_entry(), an_entry(), an_entry()
    assert (await writer.append([a, b, a])).sequences == [0, 1, 0]
    again = await writer.append([b, c, a, c])
    assert (again.sequences, again.added) == ([1, 2, 0, 2], 1)
    nothing_new = await writer.append([c, a])
    assert (nothing_new.sequences, nothing_new.added, nothing_new.size) == ([2, 0], 0, 3)
    assert check_log(log_url, 3) == [a.record_id, b.record_id, c.record_id]


async def test_another_record_with_a_known_id_is_not_taken_for_a_repetition(log_url: str, writers: Writers) -> None:
    writer, known, fresh = await writers(), an_entry(), an_entry()
    await writer.append([known])
    for entries in ([fresh, an_entry(record_id=known.record_id)], [known, an_entry(record_id=known.record_id)]):
        with pytest.raises(RecordIdTakenError):
            await writer.append(entries)
    with pytest.raises(RecordIdTakenError) as taken:
        await writer.append([an_entry(record_id=known.record_id)])
    assert taken.value.held_leaves == {known.record_id: leaf_hash(known.canonical)}
    check_log(log_url, 1)
    assert (await writer.append([known, fresh])).sequences == [0, 1]
    check_log(log_url, 2)


async def test_another_record_with_the_id_of_one_in_a_closed_shard_is_not_taken_for_it(
    log_url: str, writers: Writers
) -> None:
    writer, known = await writers(), an_entry()
    await writer.append([known])
    await writer.close_shard(0)
    with pytest.raises(RecordIdTakenError):
        await writer.append([an_entry(), an_entry(record_id=known.record_id)])
    assert (await writer.append([known, an_entry()])).sequences == [0, 2]
    check_shards(log_url)


async def test_a_writer_that_lost_the_race_goes_again_behind_the_other(log_url: str, writers: Writers) -> None:
    one, other = await writers(), await writers()
    assert (await one.append([an_entry()])).sequences == [0]
    assert (await other.append([an_entry(), an_entry()])).sequences == [1, 2]
    assert (await one.append([an_entry()])).sequences == [3]
    check_log(log_url, 4)


async def test_a_writer_that_lost_the_race_absorbs_what_the_other_stored(log_url: str, writers: Writers) -> None:
    one, other = await writers(), await writers()
    shared, own = an_entry(), an_entry()
    await one.append([shared])
    late = await other.append([shared, own])
    assert (late.sequences, late.added) == ([0, 1], 1)
    assert check_log(log_url, 2) == [shared.record_id, own.record_id]


async def test_writers_at_the_same_time_leave_one_dense_log(log_url: str, writers: Writers) -> None:
    shared = [an_entry() for _ in range(10)]

    async def write(writer: PostgresWriter) -> None:
        for place in range(30):
            await writer.append([an_entry(), shared[place % 10], an_entry()])

    await asyncio.gather(write(await writers()), write(await writers()), write(await writers()))
    assert len(set(check_log(log_url, 3 * 60 + 10))) == 190


async def test_a_prepared_commit_lies_behind_the_one_before_it(log_url: str, writers: Writers) -> None:
    writer, entries = await writers(), [an_entry() for _ in range(6)]
    groups = [entries[:2], entries[2:5], entries[5:]]
    with head_locked(log_url):
        appending = asyncio.ensure_future(writer.append(groups[0]))
        await asyncio.to_thread(wait_until, lambda: writer_waits(log_url), "the commit's wait for the head")
        writer.prepare_next(groups[1])
    assert (await appending).sequences == [0, 1]
    assert (await writer.append(groups[1])).sequences == [2, 3, 4]
    assert (await writer.append(groups[2])).sequences == [5]
    assert check_log(log_url, 6) == [entry.record_id for entry in entries]


async def test_a_commit_prepared_behind_a_failed_one_is_prepared_again(log_url: str, writers: Writers) -> None:
    writer, prepared = await writers(), [an_entry(), an_entry()]
    await writer.append([an_entry()])
    with head_locked(log_url):
        appending = asyncio.ensure_future(writer.append([an_entry()]))
        await asyncio.to_thread(wait_until, lambda: writer_waits(log_url), "the commit's wait for the head")
        writer.prepare_next(prepared)
        kill_writers(log_url)
        assert (await failure(appending)).reason is Reason.AUDIT_UNAVAILABLE
    assert (await writer.append(prepared)).sequences == [1, 2]
    check_log(log_url, 3)


async def test_a_commit_prepared_before_another_replica_committed_is_prepared_again(
    log_url: str, writers: Writers
) -> None:
    writer, other, prepared = await writers(), await writers(), [an_entry()]
    with head_locked(log_url):
        appending = asyncio.ensure_future(writer.append([an_entry()]))
        await asyncio.to_thread(wait_until, lambda: writer_waits(log_url), "the commit's wait for the head")
        writer.prepare_next(prepared)
    await appending
    assert (await other.append([an_entry(), an_entry()])).sequences == [1, 2]
    assert (await writer.append(prepared)).sequences == [3]
    check_log(log_url, 4)


async def test_a_connection_killed_within_a_commit_stores_nothing_and_the_next_commit_recovers(
    log_url: str, writers: Writers
) -> None:
    writer = await writers()
    await writer.append([an_entry()])
    entry = an_entry()
    with head_locked(log_url):
        appending = asyncio.ensure_future(writer.append([entry]))
        await asyncio.to_thread(wait_until, lambda: writer_waits(log_url), "the commit's wait for the head")
        assert not appending.done()
        kill_writers(log_url)
        assert (await failure(appending)).reason is Reason.AUDIT_UNAVAILABLE
    check_log(log_url, 1)
    assert (await writer.append([entry])).sequences == [1]
    check_log(log_url, 2)


async def test_a_commit_whose_answer_was_lost_is_not_stored_twice(
    log_url: str, writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = await writers()
    entry = an_entry()
    execute = PreparedConnection.execute_prepared

    async def lose_the_answer(self: PreparedConnection, *parts: Any) -> Any:
        await execute(self, *parts)
        raise psycopg.OperationalError("the connection broke after the commit")

    monkeypatch.setattr(PreparedConnection, "execute_prepared", lose_the_answer)
    assert (await failure(writer.append([entry]))).reason is Reason.AUDIT_UNAVAILABLE
    monkeypatch.undo()
    again = await writer.append([entry, an_entry()])
    assert (again.sequences, again.added) == ([0, 1], 1)
    check_log(log_url, 2)


async def test_a_replica_that_freezes_with_the_head_in_its_hand_does_not_stop_the_log(
    log_url: str, writers: Writers
) -> None:
    writer, frozen = await writers(), connect(log_url)
    frozen.execute("begin")
    frozen.execute("select from tree_head for update")
    assert (await writer.append([an_entry()])).sequences == [0]
    with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
        frozen.execute("commit")


async def test_an_unavailable_log_is_a_typed_failure_until_it_is_back(log_url: str, writers: Writers) -> None:
    writer = await writers()
    sql(owners_url(log_url), "alter table tree_head rename to away")
    assert (await failure(writer.append([an_entry()]))).reason is Reason.AUDIT_UNAVAILABLE
    assert (await failure(writer.append([an_entry()]))).reason is Reason.AUDIT_UNAVAILABLE
    sql(owners_url(log_url), "alter table away rename to tree_head")
    assert (await writer.append([an_entry()])).sequences == [0]
    check_log(log_url, 1)


async def test_text_that_postgres_or_an_index_cannot_hold_is_no_reason_to_fail(log_url: str, writers: Writers) -> None:
    awkward = caller_pb2.Caller(subject="did:web:\0" + "\N{GRINNING FACE}" * 5000)
    entry = an_entry(caller=awkward, tool_version="\0\0", trace_id="", ticket="\0")
    await (await writers()).append([entry])
    [(stored, trace)] = sql(log_url, "select canonical, trace_id from records")
    assert (bytes(stored), trace) == (entry.canonical, None)


async def test_commits_are_on_disk_whatever_the_servers_default(log_url: str) -> None:
    sql(log_url, "alter role audit set synchronous_commit = off")
    try:
        with connect(log_url) as connection:
            assert connection.execute("show synchronous_commit").fetchone() == ("on",)
    finally:
        sql(log_url, "alter role audit reset synchronous_commit")


async def test_the_event_loop_is_free_while_a_commit_waits(log_url: str, writers: Writers) -> None:
    writer = await writers()
    with head_locked(log_url):
        appending = asyncio.ensure_future(writer.append([an_entry()]))
        await asyncio.to_thread(wait_until, lambda: writer_waits(log_url), "the commit's wait for the head")
    assert (await appending).sequences == [0]


async def test_an_append_that_is_given_up_leaves_nothing_in_doubt(log_url: str, writers: Writers) -> None:
    writer = await writers()
    entry = an_entry()
    with head_locked(log_url):
        appending = asyncio.ensure_future(writer.append([entry]))
        await asyncio.to_thread(wait_until, lambda: writer_waits(log_url), "the commit's wait for the head")
        appending.cancel()
        await asyncio.wait([appending])
    again = await writer.append([entry, an_entry()])
    assert again.sequences == [0, 1]
    check_log(log_url, 2)


async def test_a_canceled_change_keeps_the_connection_until_it_is_done(log_url: str, writers: Writers) -> None:
    writer = await writers()
    await writer.append([an_entry()])
    with head_locked(log_url):
        closing = asyncio.ensure_future(writer.close_shard(0))
        await asyncio.to_thread(wait_until, lambda: writer_waits(log_url), "the wait for the head")
        closing.cancel()
        await asyncio.wait([closing])
        appending = asyncio.ensure_future(writer.append([an_entry()]))
        await asyncio.sleep(0)
    # The record that opens the next shard lies before it.
    assert (await appending).sequences == [2]
    check_shards(log_url)
