"""Counting on a real PostgreSQL: each record once, despite failures and concurrent replicas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine
from toolmesh.audit.v1 import audit_service_pb2 as pb

from libs.common.errors import MeshError
from libs.common.sql.engine import engine_for
from services.audit.adapters.usage import store as usage_store
from services.audit.adapters.usage.store import PostgresCountingTransaction, PostgresUsageStore
from services.audit.convert.audit import entries_of
from services.audit.domain.evidence.model import ShardLimits
from services.audit.domain.log.append_buffer import AppendBuffer
from services.audit.domain.usage.call import OTHER, LogSegment
from services.audit.domain.usage.cells import LIMITS, Rollup
from services.audit.domain.usage.count_records import CountRecords
from services.audit.tests.conftest import a_writer
from services.audit.tests.database import head_locked, sql
from services.audit.tests.replicas import Replica
from services.audit.tests.usage_replicas import counted, plain_cells, stored_cells, until_counted
from services.audit.tests.usage_sample import NOON, a_decision, a_failure, an_ending


@pytest.fixture
async def idle(start: Any, monkeypatch: pytest.MonkeyPatch) -> Replica:
    """A running audit service that does not count."""

    async def nothing(self: Any) -> None:
        return None

    monkeypatch.setattr(CountRecords, "start", nothing)
    replica: Replica = await start()
    return replica


@pytest.fixture
async def engine(idle: Replica) -> AsyncIterator[AsyncEngine]:
    made = engine_for(idle.url, schema="audit")
    yield made
    await made.dispose()


def many(count: int) -> list[Any]:
    """Return decisions and final records of several tools, callers and tasks on two days."""
    made: list[Any] = []
    for number in range(count):
        fields = {
            "subject": f"did:web:a:{number % 5}",
            "task_id": f"task-{number % 7}" if number % 3 else "",
            "tool_version": f"tools/core.tool_{number % 4}/versions/1.{number % 2}.0",
            "at": NOON - timedelta(hours=number % 30),
            "cost_micros": number,
        }
        ending = a_failure if number % 9 == 0 else an_ending
        made += [a_decision(**fields), ending(latency_us=number * 997, **fields)]  # type: ignore[arg-type]
    return made


async def count_all(store: PostgresUsageStore, url: str, size: int, **options: Any) -> None:
    counting = CountRecords(store, **options)
    while counted(url) < size:
        while await counting.run_once():
            pass


@pytest.mark.parametrize("records", [3, 2000])
async def test_segments_of_any_length_come_to_the_same_as_counting_from_scratch(
    idle: Replica, engine: AsyncEngine, records: int
) -> None:
    await idle.append(*many(40))
    await count_all(PostgresUsageStore(engine, records=records), idle.url, 80)
    assert stored_cells(idle.url) == plain_cells(idle.url)
    assert sum(tally.calls for cell, tally in stored_cells(idle.url).items() if cell.rollup is Rollup.ALL) == 40


@pytest.mark.parametrize("records", [7, 2000])
async def test_buffered_records_are_not_read_from_the_database(
    idle: Replica, engine: AsyncEngine, records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, buffer = a_writer(idle.url), AppendBuffer()
    await writer.start()
    for first in range(0, 80, 10):
        batch = pb.AppendRecordsRequest(batch=1, records=many(40)[first : first + 10])
        commit = (await writer.append(entries_of(batch, "executor"))).commit
        assert commit is not None
        buffer.add(commit)
    await writer.stop()

    async def read_log(transaction: PostgresCountingTransaction) -> Any:
        raise AssertionError(transaction)

    monkeypatch.setattr(PostgresCountingTransaction, "_read_log", read_log)
    await count_all(PostgresUsageStore(engine, buffer=buffer, records=records), idle.url, 80)
    assert stored_cells(idle.url) == plain_cells(idle.url)


async def test_a_transaction_that_breaks_half_way_leaves_everything_as_it_was(
    idle: Replica, engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await idle.append(*many(40))
    await CountRecords(PostgresUsageStore(engine, records=30)).run_once()
    before = stored_cells(idle.url)

    def cut(sizes: Any) -> Any:
        assert sql(
            idle.url,
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'toolmesh-audit'"
            " and state = 'idle in transaction' and datname = current_database()",
        )
        return columns(sizes)

    async def save(transaction: PostgresCountingTransaction, *given: Any) -> None:
        # When it reads the sizes, the cells of this transaction are written and the position is not.
        monkeypatch.setattr(usage_store, "_columns", cut)
        await original_save(transaction, *given)

    columns, original_save = usage_store._columns, PostgresCountingTransaction.save
    monkeypatch.setattr(PostgresCountingTransaction, "save", save)
    with pytest.raises(MeshError):
        await CountRecords(PostgresUsageStore(engine)).run_once()
    monkeypatch.undo()
    assert (counted(idle.url), stored_cells(idle.url)) == (30, before)
    await count_all(PostgresUsageStore(engine), idle.url, 80)
    assert stored_cells(idle.url) == plain_cells(idle.url)


async def test_of_many_counters_one_counts_at_a_time(idle: Replica, engine: AsyncEngine) -> None:
    await idle.append(*many(20))
    other = engine_for(idle.url, schema="audit")
    try:
        await asyncio.gather(
            *(
                count_all(PostgresUsageStore(each, records=7), idle.url, 40)
                for each in (engine, other)
                for _ in range(2)
            )
        )
    finally:
        await other.dispose()
    assert stored_cells(idle.url) == plain_cells(idle.url)


async def test_counting_does_not_wait_for_another_replica(idle: Replica, engine: AsyncEngine) -> None:
    await idle.append(an_ending())
    with psycopg.connect(idle.url, options="-c search_path=audit") as connection:
        connection.execute("select from usage_position for update")
        assert await asyncio.wait_for(CountRecords(PostgresUsageStore(engine)).run_once(), 60) is False
        assert counted(idle.url) == 0
    await CountRecords(PostgresUsageStore(engine)).run_once()
    assert counted(idle.url) == 1


async def test_records_that_another_replica_counted_are_skipped(idle: Replica, engine: AsyncEngine) -> None:
    async with PostgresUsageStore(engine).begin() as held:
        assert held is not None
        # The lock returns the current position, but an older size.
        transaction = PostgresCountingTransaction(held._cursor, AppendBuffer(), position=5, size=3, limit=10)
        assert await transaction.read_segment() == LogSegment(5, 5, [])
        assert transaction.behind == 0


async def test_a_transaction_does_not_wait_for_the_disk(idle: Replica, engine: AsyncEngine) -> None:
    async with PostgresUsageStore(engine).begin() as transaction:
        assert transaction is not None
        assert (await transaction._rows("show synchronous_commit"))[0] == ("off",)


async def test_counting_and_appending_do_not_wait_for_each_other(idle: Replica, engine: AsyncEngine) -> None:
    await idle.append(an_ending())
    with head_locked(idle.url):
        await asyncio.wait_for(CountRecords(PostgresUsageStore(engine)).run_once(), 60)
    assert counted(idle.url) == 1
    store = PostgresUsageStore(engine)
    async with store.begin() as transaction:
        assert transaction is not None
        await transaction.read_segment()
        await asyncio.wait_for(idle.append(an_ending()), 60)


async def test_large_records_are_counted_a_few_at_a_time(
    idle: Replica, engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_store, "SEGMENT_BYTES", 40_000)
    large = b'{"text": "' + b"x" * 15_000 + b'"}'
    await idle.append(*(an_ending(arguments_summary=large) for _ in range(9)))
    await CountRecords(PostgresUsageStore(engine)).run_once()
    assert counted(idle.url) == 3
    await count_all(PostgresUsageStore(engine), idle.url, 9)
    assert stored_cells(idle.url) == plain_cells(idle.url)


async def test_a_crowded_day_is_remembered_between_transactions(idle: Replica, engine: AsyncEngine) -> None:
    await idle.append(*(an_ending(subject=f"s{number}", at=NOON) for number in range(10)))
    limits = {**LIMITS, Rollup.CALLER: 4}
    await count_all(PostgresUsageStore(engine, records=3), idle.url, 10, limits=limits)
    calls = {c.subject: t.calls for c, t in stored_cells(idle.url).items() if c.rollup is Rollup.CALLER}
    assert calls == {"s0": 1, "s1": 1, "s2": 1, "s3": 1, OTHER: 6}


async def test_no_text_of_a_caller_stops_the_counting(idle: Replica, engine: AsyncEngine) -> None:
    texts = ["\0", "x" * 512, "\N{GRINNING FACE}" * 512, "*", "a\nb", "' or 1=1 --"]
    for text in texts:
        await idle.append(an_ending(subject=text, tenant=text, task_id=text[:32], tool_version=text))
    await count_all(PostgresUsageStore(engine), idle.url, len(texts))
    assert stored_cells(idle.url) == plain_cells(idle.url)


async def test_no_number_of_a_writer_stops_the_counting(idle: Replica, engine: AsyncEngine) -> None:
    far = 2**63 - 1
    records = [an_ending(cost_micros=far), an_ending(cost_micros=far), an_ending(attempt=2**31 - 1), an_ending()]
    # As long as a Duration can be.
    records[2].latency.FromSeconds(315_576_000_000)
    records[3].latency.seconds = -5
    records[3].event_time.seconds = -62_135_596_800
    await idle.append(*records)
    await count_all(PostgresUsageStore(engine), idle.url, 4)
    assert stored_cells(idle.url) == plain_cells(idle.url)


async def test_counting_goes_on_from_shard_to_shard_and_passes_over_one_that_is_gone(
    log_url: str, superuser: Any
) -> None:
    writer, engine = a_writer(log_url, ShardLimits(10, 10**9)), engine_for(log_url, schema="audit")
    await writer.start()
    for _ in range(5):
        batch = pb.AppendRecordsRequest(batch=1, records=[an_ending() for _ in range(10)])
        await writer.append(entries_of(batch, "executor"))
    [(size,)] = sql(log_url, "select size from tree_head")
    assert size > 50, "no shard was opened"
    superuser(log_url, "drop table records_0")
    await count_all(PostgresUsageStore(engine, records=7), log_url, size)
    await writer.stop()
    await engine.dispose()
    assert stored_cells(log_url) == plain_cells(log_url)
    assert sum(tally.calls for cell, tally in stored_cells(log_url).items() if cell.rollup is Rollup.ALL) == 40


async def test_a_running_service_counts_by_itself_and_another_takes_over(start: Any) -> None:
    first, second = await start(), await start()
    await first.append(*many(5))
    await until_counted(first.url, 10)
    await first.end()
    await second.append(*many(5))
    await until_counted(second.url, 20)
    assert stored_cells(second.url) == plain_cells(second.url)
