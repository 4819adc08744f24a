"""Waiting for claims: one poll for all, and a canceled waiter disturbs no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.errors import MeshError, Reason
from services.executor.adapters.idempotency.claim_rows import ClaimRows, Scope, scope_of
from services.executor.adapters.idempotency.waiters import ClaimWaiters
from services.executor.domain.model import Claim
from services.executor.tests.keys import a_claim, age, statements
from services.executor.tests.waiting import until


@pytest.fixture
def engine(engines: tuple[AsyncEngine, AsyncEngine]) -> AsyncEngine:
    return engines[0]


@pytest.fixture
def table(engine: AsyncEngine) -> ClaimRows:
    return ClaimRows(engine, "executor-0")


@pytest.fixture
async def waiters(table: ClaimRows) -> AsyncIterator[ClaimWaiters]:
    made = ClaimWaiters(table)
    yield made
    await made.stop()


async def held(table: ClaimRows, **changes: Any) -> Claim:
    claim = a_claim(**changes)
    await table.acquire(claim, 30.0)
    return claim


def waiting_for(waiters: ClaimWaiters, claim: Claim) -> asyncio.Future[Any]:
    return asyncio.ensure_future(waiters.wait(scope_of(claim), claim.arguments_digest))


async def test_one_statement_polls_many_claims(table: ClaimRows, waiters: ClaimWaiters, engine: AsyncEngine) -> None:
    claims = [await held(table, key=str(number)) for number in range(50)]
    calls = [waiting_for(waiters, claim) for claim in claims for _ in range(4)]
    await until(lambda: len(waiters.scopes) == 50)
    with statements(engine) as seen:
        await waiters._poll()
    # The background poll runs too; what counts is that the number does not grow with the number of claims.
    assert len([statement for statement in seen if "join claims" in statement]) == len(seen) < len(claims)
    for claim in claims:
        await table.settle(claim, "succeeded", None, result=claim.key.encode())
    rows = await asyncio.gather(*calls)
    assert [row.result for row in rows] == [claim.key.encode() for claim in claims for _ in range(4)]
    assert waiters.scopes == ()


async def test_a_waiter_of_a_released_claim_may_try_to_acquire_it(table: ClaimRows, waiters: ClaimWaiters) -> None:
    claim = await held(table)
    call = waiting_for(waiters, claim)
    await until(lambda: waiters.scopes)
    await table.release(claim)
    assert await call is None


async def test_a_waiter_of_an_expired_lease_may_try_to_acquire_it(
    table: ClaimRows, waiters: ClaimWaiters, engine: AsyncEngine
) -> None:
    claim = await held(table)
    call = waiting_for(waiters, claim)
    await until(lambda: waiters.scopes)
    await age(engine, "lease_until")
    assert await call is None


async def test_a_claim_is_watched_with_the_same_arguments_only(table: ClaimRows, waiters: ClaimWaiters) -> None:
    claim = await held(table)
    call = waiting_for(waiters, claim)
    await until(lambda: waiters.scopes)
    assert waiters.is_watching(scope_of(claim), claim.arguments_digest)
    assert not waiters.is_watching(scope_of(claim), "sha256:other")
    assert not waiters.is_watching(("core.say", "nobody", "s", "k"), claim.arguments_digest)  # type: ignore[arg-type]
    call.cancel()


async def test_a_canceled_waiter_leaves_the_others_and_the_last_ends_the_polling(
    table: ClaimRows, waiters: ClaimWaiters
) -> None:
    claim = await held(table)
    one, other = waiting_for(waiters, claim), waiting_for(waiters, claim)
    await until(lambda: waiters.scopes)
    one.cancel()
    await asyncio.wait([one])
    assert not other.done()
    assert waiters.scopes
    other.cancel()
    await asyncio.wait([other])
    assert waiters.scopes == ()
    await until(lambda: waiters._polling is None)


async def test_polling_restarts_after_all_waiters_left(table: ClaimRows, waiters: ClaimWaiters) -> None:
    for number in range(3):
        claim = await held(table, key=str(number))
        call = waiting_for(waiters, claim)
        await until(lambda: waiters.scopes)
        await table.settle(claim, "succeeded", None, result=b"x")
        assert (await call).result == b"x"
        await until(lambda: waiters._polling is None)


async def test_every_waiter_gets_its_own_error_when_the_database_fails(table: ClaimRows, waiters: ClaimWaiters) -> None:
    claim = await held(table)

    async def away(scopes: Iterable[Scope]) -> Any:
        raise ValueError("not even a MeshError")

    table.read = away  # type: ignore[method-assign]
    calls = [waiting_for(waiters, claim) for _ in range(3)]
    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(error, MeshError) and error.reason is Reason.SERVICE_UNAVAILABLE for error in errors)
    assert len({id(error) for error in errors}) == 3
