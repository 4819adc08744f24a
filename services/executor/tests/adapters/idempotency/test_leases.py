"""Leases of claims: renewed while their calls live, and reported when they may be lost."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.errors import MeshError, Reason
from services.executor.adapters.idempotency.claim_rows import ClaimRows
from services.executor.adapters.idempotency.leases import ClaimLeases
from services.executor.domain.model import Claim
from services.executor.tests.keys import a_claim, age, rows, statements
from services.executor.tests.waiting import until

# So long that no beat comes by itself while a test runs, however slow the machine: the clock of the tests stands still.
LEASE = 1000.0


class Clock:
    """A clock that a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """Leases on a real table under a clock that stands still, and what they told."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.clock, self.table = Clock(), ClaimRows(engine, "executor-0")
        self.leases = ClaimLeases(self.table, LEASE, monotonic=self.clock)
        self.lost: list[str] = []
        self.failures: list[Exception] = []
        self.leases.listen(self.lost.append, self.failures.append)

    async def hold(self, **changes: Any) -> Claim:
        claim = a_claim(**changes)
        await self.table.acquire(claim, LEASE)
        self.leases.begin(claim, self.clock.now)
        return claim

    async def later(self, seconds: float) -> None:
        """Let time pass and the next beat come."""
        self.clock.now += seconds
        await self.leases._renew()


@pytest.fixture
async def bench(engines: tuple[AsyncEngine, AsyncEngine]) -> AsyncIterator[Bench]:
    made = Bench(engines[0])
    yield made
    await made.leases.stop()


@pytest.fixture
def engine(engines: tuple[AsyncEngine, AsyncEngine]) -> AsyncEngine:
    return engines[0]


async def is_leased(engine: AsyncEngine) -> bool:
    async with engine.begin() as connection:
        return bool(await connection.scalar(text("select bool_and(lease_until > now()) from claims")))


async def test_a_lease_is_renewed_while_its_call_lives(bench: Bench, engine: AsyncEngine) -> None:
    claim = await bench.hold()
    for _ in range(20):
        await age(engine, "lease_until")
        await bench.later(LEASE / 2)
        assert await is_leased(engine)
        assert bench.leases.is_held(claim)
    assert bench.lost == []


async def test_a_short_call_needs_no_renewal(bench: Bench, engine: AsyncEngine) -> None:
    claim = await bench.hold()
    with statements(engine) as seen:
        await bench.later(LEASE / 16)
        bench.leases.end(claim)
        await bench.later(LEASE / 2)
    assert seen == []


async def test_one_statement_renews_all_leases(bench: Bench, engine: AsyncEngine) -> None:
    held = [await bench.hold(key=str(number)) for number in range(50)]
    await age(engine, "lease_until")
    with statements(engine) as seen:
        await bench.later(LEASE / 2)
    assert len(seen) == 1
    assert all(bench.leases.is_held(claim) for claim in held)
    assert await is_leased(engine)


async def test_an_owner_that_outlives_its_window_and_dies_is_unknown(bench: Bench, engine: AsyncEngine) -> None:
    claim = await bench.hold()
    await age(engine, "expire_time")
    await bench.later(LEASE / 2)
    await age(engine, "lease_until")
    [row] = await rows(engine)
    assert (row.expire_time - row.lease_until).total_seconds() > claim.window


async def test_an_owner_learns_of_a_takeover(bench: Bench, engine: AsyncEngine) -> None:
    lost, kept = await bench.hold(), await bench.hold(key="other")
    await age(engine, "lease_until")
    other = a_claim()
    await bench.table.acquire(other, LEASE)
    await bench.later(LEASE / 2)
    await bench.later(LEASE / 2)
    assert bench.lost == [lost.invocation_id]
    assert (bench.leases.is_held(lost), bench.leases.is_held(kept)) == (False, True)
    row = next(row for row in await rows(engine) if row.key == "k")
    assert row.invocation_id == other.invocation_id


async def test_a_stopped_owner_is_not_sure_before_a_renewal(bench: Bench) -> None:
    claim = await bench.hold()
    assert bench.leases.is_held(claim)
    bench.clock.now += LEASE
    assert not bench.leases.is_held(claim)


async def test_a_call_that_ends_during_the_renewal_is_not_reported(bench: Bench) -> None:
    claim = await bench.hold()

    async def ends_meanwhile(claims: Sequence[Claim], lease: float) -> set[str]:
        bench.leases.end(claim)
        return set()

    bench.table.renew = ends_meanwhile  # type: ignore[method-assign]
    await bench.later(LEASE / 2)
    assert bench.lost == []


async def test_a_failing_database_is_reported_before_the_lease_ends(bench: Bench) -> None:
    renew = bench.table.renew

    async def away(claims: Sequence[Claim], lease: float) -> set[str]:
        raise MeshError(Reason.SERVICE_UNAVAILABLE)

    claim = await bench.hold()
    bench.table.renew = away  # type: ignore[method-assign]
    await bench.later(LEASE / 2)
    assert bench.lost == []
    await bench.later(LEASE / 4)
    assert bench.lost == [claim.invocation_id]
    assert bench.leases.is_held(claim)
    await bench.later(LEASE / 4)
    assert (bench.lost, bench.leases.is_held(claim)) == ([claim.invocation_id], False)
    # The database is back and the claim was not taken over, so it is held again.
    bench.table.renew = renew  # type: ignore[method-assign]
    await bench.later(LEASE / 4)
    assert bench.leases.is_held(claim)
    assert {type(cause) for cause in bench.failures} == {MeshError}


async def test_a_silent_database_is_reported_before_the_driver_times_out(
    bench: Bench,
) -> None:
    answers = asyncio.Event()

    async def says_nothing(claims: Sequence[Claim], lease: float) -> set[str]:
        with suppress(asyncio.CancelledError):
            await answers.wait()
        # As a driver does that first wants to hear that its statement was given up.
        await answers.wait()
        return set()

    claim = await bench.hold()
    bench.table.renew = says_nothing  # type: ignore[method-assign]
    bench.leases._interval = 0.01
    bench.clock.now += LEASE - 0.01
    renewing = asyncio.ensure_future(bench.leases._renew())
    await until(lambda: bench.lost)
    await renewing
    assert (bench.lost, [type(cause) for cause in bench.failures]) == ([claim.invocation_id], [TimeoutError])
    answers.set()
    await until(lambda: not bench.leases._statements)


async def test_a_dropped_claim_is_not_renewed(bench: Bench, engine: AsyncEngine) -> None:
    claim = await bench.hold()
    kept = await bench.hold(key="other")
    await bench.later(LEASE / 2)
    del claim
    gc.collect()
    await age(engine, "lease_until")
    await bench.later(LEASE / 2)
    assert {row.key for row in await rows(engine) if row.lease_until > datetime.now(UTC)} == {"other"}
    assert (bench.leases.is_held(kept), len(bench.leases._leases)) == (True, 1)


async def test_the_timer_renews_held_leases(engine: AsyncEngine) -> None:
    table = ClaimRows(engine, "executor-0")
    leases = ClaimLeases(table, 0.2)
    renewed: list[int] = []
    renew = table.renew

    async def noted(claims: Sequence[Claim], lease: float) -> set[str]:
        renewed.append(len(claims))
        return await renew(claims, lease)

    table.renew = noted  # type: ignore[method-assign]
    claim = a_claim()
    await table.acquire(claim, 0.2)
    leases.begin(claim, leases._monotonic())
    await until(lambda: len(renewed) >= 3)
    leases.end(claim)
    await until(lambda: leases._timer is None)
    await leases.stop()
