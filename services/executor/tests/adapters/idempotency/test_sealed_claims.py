"""Stored outcomes: encrypted, and bound to key, tenant and call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.errors import MeshError, Reason
from libs.common.sealing import Seal
from services.executor.adapters.idempotency.claims import PostgresClaims
from services.executor.adapters.tables import claims as table
from services.executor.domain.model import ClaimOutcome
from services.executor.tests.keys import a_claim, encode_record, refusal, rows
from services.executor.tests.samples import a_result

SECRET = "the-content-that-nobody-may-read-in-a-dump"


@pytest.fixture
def engine(engines: tuple[AsyncEngine, AsyncEngine]) -> AsyncEngine:
    return engines[0]


@pytest.mark.parametrize(
    "outcome", [a_result(content=SECRET.encode()), MeshError(Reason.EXECUTION_FAILED, message=SECRET)]
)
async def test_a_stored_outcome_is_not_readable_in_the_database(
    engine: AsyncEngine, here: PostgresClaims, outcome: Any
) -> None:
    claim = a_claim()
    await here.acquire(claim)
    await here.settle(claim, ClaimOutcome(claim.invocation_id, outcome))
    [row] = await rows(engine)
    assert SECRET.encode() not in b"".join(value for value in row if isinstance(value, bytes))


async def test_an_outcome_whose_sealing_key_is_gone_is_unknown_and_not_repeated(
    engines: tuple[AsyncEngine, AsyncEngine], here: PostgresClaims
) -> None:
    claim = a_claim()
    await here.acquire(claim)
    await here.settle(claim, ClaimOutcome(claim.invocation_id, a_result()))
    bereft = PostgresClaims(engines[1], "executor-1", Seal([bytes(32)]), encode_record)
    error = await refusal(bereft.acquire(a_claim(invocation_id="inv-2")))
    assert error.reason is Reason.UNKNOWN_OUTCOME


async def test_claims_of_other_tenants_are_separate(here: PostgresClaims, there: PostgresClaims) -> None:
    ours, theirs = a_claim(tenant="acme"), a_claim(tenant="globex")
    results = {"acme": a_result(content=b'{"said":"ours"}'), "globex": a_result(content=b'{"said":"theirs"}')}
    assert await here.acquire(ours) is None
    assert await asyncio.wait_for(there.acquire(theirs), 60) is None
    for side, claim in ((here, ours), (there, theirs)):
        await side.settle(claim, ClaimOutcome(claim.invocation_id, results[claim.tenant]))
    for tenant, result in results.items():
        settled = await there.acquire(a_claim(tenant=tenant))
        assert settled is not None
        assert settled.outcome == result


@pytest.mark.parametrize("tenant", ["acme", "globex"])
async def test_an_outcome_is_bound_to_its_tenant(engine: AsyncEngine, here: PostgresClaims, tenant: str) -> None:
    claim = a_claim(tenant="acme")
    await here.acquire(claim)
    await here.settle(claim, ClaimOutcome(claim.invocation_id, a_result()))
    async with engine.begin() as connection:
        await connection.execute(update(table).values(tenant=tenant))
    if tenant == "acme":
        assert await here.acquire(a_claim(tenant=tenant)) is not None
    else:
        assert (await refusal(here.acquire(a_claim(tenant=tenant)))).reason is Reason.UNKNOWN_OUTCOME


async def test_an_outcome_moved_to_another_key_is_refused(engine: AsyncEngine, here: PostgresClaims) -> None:
    for key, invocation in (("one", "inv-1"), ("two", "inv-2")):
        claim = a_claim(key=key, invocation_id=invocation)
        await here.acquire(claim)
        await here.settle(claim, ClaimOutcome(invocation, a_result()))
    async with engine.begin() as connection:
        moved = select(table.c.result).where(table.c.key == "one").scalar_subquery()
        await connection.execute(update(table).where(table.c.key == "two").values(result=moved))
    error = await refusal(here.acquire(a_claim(key="two", invocation_id="inv-3")))
    assert error.reason is Reason.UNKNOWN_OUTCOME
