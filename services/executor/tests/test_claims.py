"""Idempotency keys in a real PostgreSQL: two processes are two instances on the same tables."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.errors import MeshError, Reason, Violation
from libs.common.ids import new_id
from libs.common.sealing import Seal
from libs.common.sql.engine import engine_for
from services.executor.adapters.claims import PostgresClaims
from services.executor.adapters.tables import claims as table
from services.executor.domain.model import Claim, Deprecation, Settled
from services.executor.tests.samples import a_result
from services.executor.tests.waiting import until

KEY = bytes(range(32))


def a_claim(**changes: Any) -> Claim:
    fields: dict[str, Any] = {
        "tool": "core.say",
        "subject": "did:web:toolmesh.local:users:alice",
        "session": "session-1",
        "key": "k",
        "arguments_digest": "sha256:a",
        "invocation_id": new_id(),
        "lease": 30.0,
        "window": 3600.0,
        "repeatable": False,
        **changes,
    }
    return Claim(**fields)


@pytest.fixture
def engine(engines: tuple[AsyncEngine, AsyncEngine]) -> AsyncEngine:
    return engines[0]


@pytest.fixture
def here(engines: tuple[AsyncEngine, AsyncEngine]) -> PostgresClaims:
    return PostgresClaims(engines[0], "executor-0", Seal([KEY]))


@pytest.fixture
def there(engines: tuple[AsyncEngine, AsyncEngine]) -> PostgresClaims:
    return PostgresClaims(engines[1], "executor-1", Seal([KEY]))


async def refusal(waiting: Any) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await waiting
    return caught.value


async def rows(engine: AsyncEngine) -> list[Any]:
    async with engine.begin() as connection:
        return list(await connection.execute(select(table)))


async def age(engine: AsyncEngine, column: str) -> None:
    """Let a moment that is in the future be in the past."""
    async with engine.begin() as connection:
        await connection.execute(update(table).values({column: func.now() - timedelta(seconds=1)}))


async def test_the_first_claim_is_held(here: PostgresClaims, engine: AsyncEngine) -> None:
    claim = a_claim()
    assert await here.acquire(claim, within=5) is None
    [row] = await rows(engine)
    assert (row.owner, row.state, row.invocation_id) == ("executor-0", "running", claim.invocation_id)
    assert (row.lease_until - row.create_time).total_seconds() == 30.0
    assert (row.expire_time - row.create_time).total_seconds() == 3600.0


async def test_a_settled_claim_answers_everywhere_with_the_whole_result(
    here: PostgresClaims, there: PostgresClaims
) -> None:
    claim = a_claim()
    await here.acquire(claim, within=5)
    result = a_result(
        adjusted=("/a",), evidence=("r1", "r2"), policies=("p",), deprecation=Deprecation(None, "tools/core.b", "url")
    )
    await here.settle(claim, Settled(claim.invocation_id, result))
    assert await there.acquire(a_claim(), within=5) == Settled(claim.invocation_id, result)


async def test_a_stored_error_comes_back_whole(here: PostgresClaims, there: PostgresClaims) -> None:
    claim = a_claim()
    await here.acquire(claim, within=5)
    error = MeshError(
        Reason.EXECUTION_FAILED, message="no", violations=[Violation("/a", "b", "c")], metadata={"x": "y"}
    )
    await here.settle(claim, Settled(claim.invocation_id, error))
    found = await there.acquire(a_claim(), within=5)
    assert found is not None
    assert isinstance(found.outcome, MeshError)
    assert (found.outcome.reason, found.outcome.message) == (error.reason, error.message)
    assert (found.outcome.violations, found.outcome.metadata) == (error.violations, error.metadata)


async def test_other_arguments_conflict_while_it_runs_and_after(here: PostgresClaims, there: PostgresClaims) -> None:
    claim = a_claim()
    await here.acquire(claim, within=5)
    other = a_claim(arguments_digest="sha256:b")
    assert (await refusal(there.acquire(other, within=5))).reason is Reason.IDEMPOTENCY_CONFLICT
    await here.settle(claim, Settled(claim.invocation_id, a_result()))
    assert (await refusal(there.acquire(other, within=5))).reason is Reason.IDEMPOTENCY_CONFLICT


@pytest.mark.parametrize("part", ["tool", "subject", "session", "key"])
async def test_a_key_means_something_only_within_its_scope(here: PostgresClaims, part: str) -> None:
    assert await here.acquire(a_claim(), within=5) is None
    assert await here.acquire(a_claim(**{part: "other"}), within=5) is None


async def test_fifty_calls_in_two_processes_run_once(here: PostgresClaims, there: PostgresClaims) -> None:
    ran: list[str] = []
    all_waiting = asyncio.Event()
    result = a_result()

    async def call(number: int) -> Any:
        side, claim = (here, there)[number % 2], a_claim()
        found = await side.acquire(claim, within=60)
        if found is not None:
            return found.outcome
        ran.append(claim.invocation_id)
        await all_waiting.wait()
        await side.settle(claim, Settled(claim.invocation_id, result))
        return result

    calls = [asyncio.ensure_future(call(number)) for number in range(50)]
    await until(lambda: here._watches and there._watches)
    all_waiting.set()
    outcomes = await asyncio.gather(*calls)
    assert len(ran) == 1
    assert outcomes == [result] * 50


async def test_however_many_wait_one_of_them_looks(here: PostgresClaims) -> None:
    claim = a_claim()
    await here.acquire(claim, within=5)
    waiting = [asyncio.ensure_future(here.acquire(a_claim(), within=60)) for _ in range(20)]
    await until(lambda: here._watches)
    assert len(here._watches) == 1
    await here.settle(claim, Settled(claim.invocation_id, a_result()))
    assert all(await asyncio.gather(*waiting))
    assert here._watches == {}


async def test_a_released_key_is_anybodys(here: PostgresClaims, there: PostgresClaims, engine: AsyncEngine) -> None:
    claim = a_claim()
    await here.acquire(claim, within=5)
    waiting = asyncio.ensure_future(there.acquire(a_claim(arguments_digest="sha256:a"), within=60))
    await here.release(claim)
    assert await waiting is None
    [row] = await rows(engine)
    assert row.owner == "executor-1"


async def test_waiting_ends_with_the_callers_time(here: PostgresClaims) -> None:
    await here.acquire(a_claim(), within=5)
    assert (await refusal(here.acquire(a_claim(), within=0.05))).reason is Reason.DEADLINE_EXCEEDED


async def test_a_silent_owner_of_a_repeatable_call_is_replaced(
    here: PostgresClaims, there: PostgresClaims, engine: AsyncEngine
) -> None:
    lost, next_one = a_claim(repeatable=True), a_claim(repeatable=True)
    await here.acquire(lost, within=5)
    await age(engine, "lease_until")
    assert await there.acquire(next_one, within=5) is None
    [row] = await rows(engine)
    assert (row.owner, row.invocation_id) == ("executor-1", next_one.invocation_id)
    await here.settle(lost, Settled(lost.invocation_id, a_result()))
    await here.release(lost)
    [row] = await rows(engine)
    assert (row.state, row.invocation_id) == ("running", next_one.invocation_id)


async def test_a_silent_owner_is_replaced_by_exactly_one(
    here: PostgresClaims, there: PostgresClaims, engine: AsyncEngine
) -> None:
    await here.acquire(a_claim(repeatable=True), within=5)
    await age(engine, "lease_until")
    calls = [side.acquire(a_claim(repeatable=True), within=0.5) for side in (here, there) * 5]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert outcomes.count(None) == 1


async def test_a_silent_owner_of_a_write_leaves_an_unknown_outcome_until_it_speaks(
    here: PostgresClaims, there: PostgresClaims, engine: AsyncEngine
) -> None:
    lost = a_claim()
    await here.acquire(lost, within=5)
    await age(engine, "lease_until")
    error = await refusal(there.acquire(a_claim(), within=5))
    assert (error.reason, error.metadata["first_invocation"]) == (Reason.UNKNOWN_OUTCOME, lost.invocation_id)
    await here.settle(lost, Settled(lost.invocation_id, a_result()))
    assert await there.acquire(a_claim(), within=5) is not None


async def test_a_key_whose_window_is_over_is_new(
    here: PostgresClaims, there: PostgresClaims, engine: AsyncEngine
) -> None:
    claim = a_claim()
    await here.acquire(claim, within=5)
    await here.settle(claim, Settled(claim.invocation_id, a_result()))
    await age(engine, "expire_time")
    assert await there.acquire(a_claim(arguments_digest="sha256:other"), within=5) is None
    [row] = await rows(engine)
    assert (row.state, row.result, row.arguments_digest) == ("running", None, "sha256:other")


async def test_sweeping_forgets_what_is_over_and_nothing_else(here: PostgresClaims, engine: AsyncEngine) -> None:
    await here.acquire(a_claim(key="old"), within=5)
    await age(engine, "expire_time")
    await here.acquire(a_claim(key="new"), within=5)
    assert await here.sweep() == 1
    assert await here.sweep() == 0
    assert [row.key for row in await rows(engine)] == ["new"]


async def test_a_window_begins_when_the_call_ends(here: PostgresClaims, engine: AsyncEngine) -> None:
    claim = a_claim()
    await here.acquire(claim, within=5)
    await age(engine, "expire_time")
    await here.settle(claim, Settled(claim.invocation_id, a_result()))
    async with engine.begin() as connection:
        left = await connection.scalar(select(table.c.expire_time > func.now()))
    assert left


async def test_a_database_that_is_away_is_said_so() -> None:
    engine = engine_for("postgresql://executor:test@127.0.0.1:1/none", schema="executor")
    error = await refusal(PostgresClaims(engine, "executor-0", Seal([KEY])).acquire(a_claim(), within=10))
    assert error.reason is Reason.SERVICE_UNAVAILABLE
    await engine.dispose()


SECRET = "the-content-that-nobody-may-read-in-a-dump"


@pytest.mark.parametrize(
    "outcome", [a_result(content=SECRET.encode()), MeshError(Reason.EXECUTION_FAILED, message=SECRET)]
)
async def test_what_a_call_answered_cannot_be_read_in_the_database(
    engine: AsyncEngine, here: PostgresClaims, outcome: Any
) -> None:
    claim = a_claim()
    await here.acquire(claim, within=10)
    await here.settle(claim, Settled(claim.invocation_id, outcome))
    [row] = await rows(engine)
    assert SECRET.encode() not in b"".join(value for value in row if isinstance(value, bytes))


async def test_an_answer_whose_key_is_gone_is_unknown_and_nothing_is_repeated(
    engines: tuple[AsyncEngine, AsyncEngine], here: PostgresClaims
) -> None:
    claim = a_claim()
    await here.acquire(claim, within=10)
    await here.settle(claim, Settled(claim.invocation_id, a_result()))
    bereft = PostgresClaims(engines[1], "executor-1", Seal([bytes(32)]))
    error = await refusal(bereft.acquire(a_claim(invocation_id="inv-2"), within=10))
    assert error.reason is Reason.UNKNOWN_OUTCOME


async def test_an_answer_that_was_moved_to_another_key_is_not_taken_for_its_own(
    engine: AsyncEngine, here: PostgresClaims
) -> None:
    for key, invocation in (("one", "inv-1"), ("two", "inv-2")):
        claim = a_claim(key=key, invocation_id=invocation)
        await here.acquire(claim, within=10)
        await here.settle(claim, Settled(invocation, a_result()))
    async with engine.begin() as connection:
        moved = select(table.c.result).where(table.c.key == "one").scalar_subquery()
        await connection.execute(update(table).where(table.c.key == "two").values(result=moved))
    error = await refusal(here.acquire(a_claim(key="two", invocation_id="inv-3"), within=10))
    assert error.reason is Reason.UNKNOWN_OUTCOME
