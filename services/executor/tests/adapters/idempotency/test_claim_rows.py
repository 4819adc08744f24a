"""The SQL of claims under concurrency."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from services.executor.adapters.idempotency.claim_rows import ClaimRows, scope_of
from services.executor.tests.keys import a_claim, age, rows


@pytest.fixture
def engine(engines: tuple[AsyncEngine, AsyncEngine]) -> AsyncEngine:
    return engines[0]


@pytest.fixture
def table(engine: AsyncEngine) -> ClaimRows:
    return ClaimRows(engine, "executor-0")


async def test_one_of_many_concurrent_calls_acquires_and_all_see_it(
    engines: tuple[AsyncEngine, AsyncEngine],
) -> None:
    tables = [ClaimRows(engine, "e") for engine in engines]
    claims = [a_claim() for _ in range(40)]
    rows = await asyncio.gather(*(tables[n % 2].acquire(claim, 30.0) for n, claim in enumerate(claims)))
    holders = [row for row in rows if row is not None and row.ours]
    assert len(holders) == 1
    assert {row.invocation_id for row in rows if row is not None} == {holders[0].invocation_id}


async def test_one_of_many_concurrent_calls_takes_over_an_unknown_outcome(
    engines: tuple[AsyncEngine, AsyncEngine], table: ClaimRows, engine: AsyncEngine
) -> None:
    first = a_claim()
    await table.acquire(first, 30.0)
    await age(engine, "lease_until")
    tables = [ClaimRows(each, "e") for each in engines]
    rows = await asyncio.gather(*(tables[n % 2].acquire(a_claim(), 30.0) for n in range(40)))
    [holder] = [row for row in rows if row is not None and row.ours]
    assert holder.doubted == first.invocation_id
    assert {row.doubted for row in rows if row is not None} == {first.invocation_id}


async def test_a_row_reports_whether_it_is_in_progress(table: ClaimRows, engine: AsyncEngine) -> None:
    running, ended, free = a_claim(key="running"), a_claim(key="ended"), a_claim(key="free")
    for claim in (running, ended):
        await table.acquire(claim, 30.0)
    await table.settle(ended, "failed", None, error=b"e")
    rows = await table.read([scope_of(claim) for claim in (running, ended, free)])
    assert {scope[-1]: in_progress for scope, (in_progress, _) in rows.items()} == {"running": True, "ended": False}
    assert rows[scope_of(ended)][1].error == b"e"
    await age(engine, "lease_until")
    rows = await table.read([scope_of(running)])
    assert not rows[scope_of(running)][0]


async def test_only_held_claims_are_renewed(table: ClaimRows, engine: AsyncEngine) -> None:
    held, ended, others = a_claim(key="held"), a_claim(key="ended"), a_claim(key="others")
    for claim in (held, ended, others):
        await table.acquire(claim, 30.0)
    await table.settle(ended, "succeeded", None, result=b"r")
    await age(engine, "lease_until")
    imposter = a_claim(key="others")
    assert await table.renew([held, ended, imposter], 60.0) == {held.invocation_id}
    aged = {row.key for row in await rows(engine) if row.lease_until < row.create_time}
    assert aged == {"ended", "others"}
