"""Waiting for keys: one look for everybody, and nobody's leaving disturbs another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.errors import MeshError, Reason
from services.executor.adapters.idempotency.claim_rows import ClaimRows, Scope, scope_of
from services.executor.adapters.idempotency.waiters import ClaimWatch
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
async def watch(table: ClaimRows) -> AsyncIterator[ClaimWatch]:
    made = ClaimWatch(table)
    yield made
    await made.stop()


async def held(table: ClaimRows, **changes: Any) -> Claim:
    claim = a_claim(**changes)
    await table.seize(claim, 30.0)
    return claim


def waiting_for(watch: ClaimWatch, claim: Claim) -> asyncio.Future[Any]:
    return asyncio.ensure_future(watch.change(scope_of(claim), claim.arguments_digest))


async def test_many_keys_are_looked_at_together(table: ClaimRows, watch: ClaimWatch, engine: AsyncEngine) -> None:
    claims = [await held(table, key=str(number)) for number in range(50)]
    calls = [waiting_for(watch, claim) for claim in claims for _ in range(4)]
    await until(lambda: len(watch.scopes) == 50)
    with statements(engine) as seen:
        await watch._look()
    assert len([statement for statement in seen if "join claims" in statement]) == len(seen) <= 2
    for claim in claims:
        await table.settle(claim, "succeeded", result=claim.key.encode())
    found = await asyncio.gather(*calls)
    assert [row.result for row in found] == [claim.key.encode() for claim in claims for _ in range(4)]
    assert watch.scopes == ()


async def test_a_key_that_was_given_back_is_worth_a_try(table: ClaimRows, watch: ClaimWatch) -> None:
    claim = await held(table)
    call = waiting_for(watch, claim)
    await until(lambda: watch.scopes)
    await table.release(claim)
    assert await call is None


async def test_a_key_whose_owner_fell_silent_is_worth_a_try(
    table: ClaimRows, watch: ClaimWatch, engine: AsyncEngine
) -> None:
    claim = await held(table)
    call = waiting_for(watch, claim)
    await until(lambda: watch.scopes)
    await age(engine, "lease_until")
    assert await call is None


async def test_only_the_same_arguments_are_known_to_be_under_way(table: ClaimRows, watch: ClaimWatch) -> None:
    claim = await held(table)
    call = waiting_for(watch, claim)
    await until(lambda: watch.scopes)
    assert watch.knows(scope_of(claim), claim.arguments_digest)
    assert not watch.knows(scope_of(claim), "sha256:other")
    assert not watch.knows(("core.say", "nobody", "s", "k"), claim.arguments_digest)
    call.cancel()


async def test_who_leaves_does_not_take_the_others_along_and_the_last_ends_the_watch(
    table: ClaimRows, watch: ClaimWatch
) -> None:
    claim = await held(table)
    one, other = waiting_for(watch, claim), waiting_for(watch, claim)
    await until(lambda: watch.scopes)
    one.cancel()
    await asyncio.wait([one])
    assert not other.done()
    assert watch.scopes
    other.cancel()
    await asyncio.wait([other])
    assert watch.scopes == ()
    await until(lambda: watch._looking is None)


async def test_it_begins_again_after_it_had_nothing_to_do(table: ClaimRows, watch: ClaimWatch) -> None:
    for number in range(3):
        claim = await held(table, key=str(number))
        call = waiting_for(watch, claim)
        await until(lambda: watch.scopes)
        await table.settle(claim, "succeeded", result=b"x")
        assert (await call).result == b"x"
        await until(lambda: watch._looking is None)


async def test_when_nobody_can_look_everyone_is_told_with_an_error_of_their_own(
    table: ClaimRows, watch: ClaimWatch
) -> None:
    claim = await held(table)

    async def away(scopes: Iterable[Scope]) -> Any:
        raise ValueError("not even a MeshError")

    table.look = away  # type: ignore[method-assign]
    calls = [waiting_for(watch, claim) for _ in range(3)]
    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(error, MeshError) and error.reason is Reason.SERVICE_UNAVAILABLE for error in errors)
    assert len({id(error) for error in errors}) == 3
