"""Idempotency claims in a real PostgreSQL: two instances on the same tables act as two processes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.errors import MeshError, Reason, Violation
from libs.common.sealing import Seal
from libs.common.sql.engine import engine_for
from services.executor.adapters.idempotency.claims import LEASE_SECONDS, PostgresClaims
from services.executor.adapters.tables import claims as table
from services.executor.domain.argument_spec import Change
from services.executor.domain.idempotency.unknown_outcome import MOST_RUNS, ClaimLostError, UnresolvedClaim
from services.executor.domain.model import ClaimOutcome
from services.executor.domain.tool import Deprecation
from services.executor.tests.keys import KEY, a_claim, age, encode_record, refusal, rows, statements
from services.executor.tests.samples import a_result
from services.executor.tests.waiting import until


@pytest.fixture
def engine(engines: tuple[AsyncEngine, AsyncEngine]) -> AsyncEngine:
    return engines[0]


async def test_the_first_claim_is_held(here: PostgresClaims, engine: AsyncEngine) -> None:
    claim = a_claim()
    assert await here.acquire(claim) is None
    [row] = await rows(engine)
    assert (row.owner, row.state, row.invocation_id) == ("executor-0", "running", claim.invocation_id)
    assert (row.expire_time - row.create_time).total_seconds() == LEASE_SECONDS + 3600.0
    assert here.is_held(claim)


async def test_a_lease_is_independent_of_the_time_limit(here: PostgresClaims, engine: AsyncEngine) -> None:
    await here.acquire(a_claim())
    [row] = await rows(engine)
    assert (row.lease_until - row.create_time).total_seconds() == LEASE_SECONDS


async def test_a_call_with_a_key_costs_two_statements(here: PostgresClaims, engine: AsyncEngine) -> None:
    claim = a_claim()
    with statements(engine) as seen:
        await here.acquire(claim)
        await here.settle(claim, ClaimOutcome(claim.invocation_id, a_result()))
    assert len(seen) == 2


async def test_a_stored_outcome_costs_one_statement(
    here: PostgresClaims, there: PostgresClaims, engines: tuple[AsyncEngine, AsyncEngine]
) -> None:
    claim = a_claim()
    await here.acquire(claim)
    await here.settle(claim, ClaimOutcome(claim.invocation_id, a_result()))
    with statements(engines[1]) as seen:
        await there.acquire(a_claim())
    assert len(seen) == 1


async def test_a_settled_claim_returns_the_complete_result_everywhere(
    here: PostgresClaims, there: PostgresClaims
) -> None:
    claim = a_claim()
    await here.acquire(claim)
    result = a_result(
        changes=(Change("/a", "default"),),
        evidence=("r1", "r2"),
        policies=("p",),
        deprecation=Deprecation(None, "tools/core.b", "url"),
    )
    await here.settle(claim, ClaimOutcome(claim.invocation_id, result))
    assert await there.acquire(a_claim()) == ClaimOutcome(claim.invocation_id, result)


async def test_a_stored_error_is_returned_completely(here: PostgresClaims, there: PostgresClaims) -> None:
    claim = a_claim()
    await here.acquire(claim)
    error = MeshError(
        Reason.EXECUTION_FAILED, message="no", violations=[Violation("/a", "b", "c")], metadata={"x": "y"}
    )
    await here.settle(claim, ClaimOutcome(claim.invocation_id, error))
    settled = await there.acquire(a_claim())
    assert settled is not None
    assert isinstance(settled.outcome, MeshError)
    assert (settled.outcome.reason, settled.outcome.message) == (error.reason, error.message)
    assert (settled.outcome.violations, settled.outcome.metadata) == (error.violations, error.metadata)


async def test_other_arguments_conflict_during_and_after_the_call(here: PostgresClaims, there: PostgresClaims) -> None:
    claim = a_claim()
    await here.acquire(claim)
    other = a_claim(arguments_digest="sha256:b")
    assert (await refusal(there.acquire(other))).reason is Reason.IDEMPOTENCY_CONFLICT
    await here.settle(claim, ClaimOutcome(claim.invocation_id, a_result()))
    assert (await refusal(there.acquire(other))).reason is Reason.IDEMPOTENCY_CONFLICT


@pytest.mark.parametrize("part", ["tenant", "tool", "subject", "session", "key"])
async def test_keys_are_separate_by_scope(here: PostgresClaims, part: str) -> None:
    assert await here.acquire(a_claim()) is None
    assert await here.acquire(a_claim(**{part: "other"})) is None


async def test_two_hundred_calls_in_two_processes_run_once(here: PostgresClaims, there: PostgresClaims) -> None:
    ran: list[str] = []
    all_waiting = asyncio.Event()
    result = a_result()

    async def call(number: int) -> Any:
        side, claim = (here, there)[number % 2], a_claim()
        settled = await side.acquire(claim)
        if settled is not None:
            return settled.outcome
        ran.append(claim.invocation_id)
        await all_waiting.wait()
        await side.settle(claim, ClaimOutcome(claim.invocation_id, result))
        return result

    calls = [asyncio.ensure_future(call(number)) for number in range(200)]
    await until(lambda: here._waiters.scopes and there._waiters.scopes)
    all_waiting.set()
    outcomes = await asyncio.gather(*calls)
    assert len(ran) == 1
    assert outcomes == [result] * 200


async def test_concurrent_calls_share_few_statements(here: PostgresClaims, engine: AsyncEngine) -> None:
    claim = a_claim()
    await here.acquire(claim)
    with statements(engine) as seen:
        waiting = [asyncio.ensure_future(here.acquire(a_claim())) for _ in range(200)]
        await until(lambda: here._waiters.scopes)
        await here.settle(claim, ClaimOutcome(claim.invocation_id, a_result()))
        assert all(await asyncio.gather(*waiting))
    assert len([statement for statement in seen if "insert into claims" in statement]) == 1
    assert here._waiters.scopes == ()


async def test_concurrent_calls_share_the_failure_of_the_database() -> None:
    engine = engine_for("postgresql://executor:test@127.0.0.1:1/none", schema="executor")
    claims = PostgresClaims(engine, "executor-0", Seal([KEY]), encode_record)
    with statements(engine):
        calls = [refusal(claims.acquire(a_claim())) for _ in range(20)]
        told = await asyncio.gather(*calls)
    assert {error.reason for error in told} == {Reason.SERVICE_UNAVAILABLE}
    assert len({id(error) for error in told}) == 20
    await engine.dispose()


async def test_another_call_acquires_when_the_first_is_canceled(here: PostgresClaims) -> None:
    acquire, entered = here._rows.acquire, asyncio.Event()

    async def held_up(*asked: Any) -> Any:
        entered.set()
        await asyncio.Event().wait()

    here._rows.acquire = held_up  # type: ignore[assignment, method-assign]
    first = asyncio.ensure_future(here.acquire(a_claim()))
    await entered.wait()
    second = asyncio.ensure_future(here.acquire(a_claim()))
    await asyncio.sleep(0)
    here._rows.acquire = acquire  # type: ignore[method-assign]
    first.cancel()
    assert await second is None


async def test_a_waiter_with_other_arguments_conflicts_at_once(here: PostgresClaims) -> None:
    await here.acquire(a_claim())
    waiting = asyncio.ensure_future(here.acquire(a_claim()))
    await until(lambda: here._waiters.scopes)
    error = await refusal(here.acquire(a_claim(arguments_digest="sha256:b")))
    assert error.reason is Reason.IDEMPOTENCY_CONFLICT
    waiting.cancel()


async def test_each_waiter_gets_its_own_error(here: PostgresClaims, there: PostgresClaims) -> None:
    claim = a_claim()
    await here.acquire(claim)
    waiting = [asyncio.ensure_future(there.acquire(a_claim())) for _ in range(2)]
    await until(lambda: there._waiters.scopes)
    await here.settle(claim, ClaimOutcome(claim.invocation_id, MeshError(Reason.EXECUTION_FAILED)))
    one, other = [settled.outcome for settled in await asyncio.gather(*waiting) if settled is not None]
    assert one is not other


async def test_a_released_claim_can_be_acquired(
    here: PostgresClaims, there: PostgresClaims, engine: AsyncEngine
) -> None:
    claim = a_claim()
    await here.acquire(claim)
    waiting = asyncio.ensure_future(there.acquire(a_claim(arguments_digest="sha256:a")))
    await here.release(claim)
    assert await waiting is None
    [row] = await rows(engine)
    assert row.owner == "executor-1"


async def test_a_canceled_waiter_leaves_the_claim_with_its_owner(here: PostgresClaims) -> None:
    claim = a_claim()
    await here.acquire(claim)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(here.acquire(a_claim()), 0.05)
    assert here._waiters.scopes == ()
    assert here.is_held(claim)


async def test_a_claim_whose_outcome_cannot_be_encoded_is_not_renewed(here: PostgresClaims) -> None:
    claim = a_claim()
    await here.acquire(claim)
    with pytest.raises(TypeError):
        await here.settle(claim, ClaimOutcome(claim.invocation_id, a_result(content=None)))
    assert not here.is_held(claim)


async def test_a_claim_is_held_until_its_outcome_is_stored(
    here: PostgresClaims, there: PostgresClaims, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, result = a_claim(), a_result()
    await here.acquire(claim)

    async def away(*anything: Any, **more: Any) -> bool:
        raise MeshError(Reason.SERVICE_UNAVAILABLE)

    with monkeypatch.context() as patch:
        for verb in ("settle", "release", "abandon"):
            patch.setattr(here._rows, verb, away)
        for step in (
            here.settle(claim, ClaimOutcome(claim.invocation_id, result)),
            here.release(claim),
            here.abandon(claim),
        ):
            assert (await refusal(step)).reason is Reason.SERVICE_UNAVAILABLE
            assert here.is_held(claim)
    await here.settle(claim, ClaimOutcome(claim.invocation_id, result))
    assert not here.is_held(claim)
    assert await there.acquire(a_claim()) == ClaimOutcome(claim.invocation_id, result)


async def test_a_dead_owner_of_a_repeatable_call_is_replaced(
    here: PostgresClaims, there: PostgresClaims, engine: AsyncEngine
) -> None:
    lost, next_one = a_claim(repeatable=True), a_claim(repeatable=True)
    await here.acquire(lost)
    await age(engine, "lease_until")
    assert await there.acquire(next_one) is None
    [row] = await rows(engine)
    assert (row.owner, row.invocation_id) == ("executor-1", next_one.invocation_id)


async def test_a_replaced_owner_can_neither_settle_nor_release(
    here: PostgresClaims, there: PostgresClaims, engine: AsyncEngine
) -> None:
    lost, next_one = a_claim(repeatable=True), a_claim(repeatable=True)
    await here.acquire(lost)
    await age(engine, "lease_until")
    await there.acquire(next_one)
    with pytest.raises(ClaimLostError):
        await here.settle(lost, ClaimOutcome(lost.invocation_id, a_result()))
    await here.release(lost)
    await here.abandon(lost)
    [row] = await rows(engine)
    assert (row.state, row.invocation_id) == ("running", next_one.invocation_id)
    assert not here.is_held(lost)
    first = a_result()
    await there.settle(next_one, ClaimOutcome(next_one.invocation_id, first))
    with pytest.raises(ClaimLostError):
        await here.settle(lost, ClaimOutcome(lost.invocation_id, a_result()))
    assert await here.acquire(a_claim()) == ClaimOutcome(next_one.invocation_id, first)


async def test_a_settled_outcome_is_not_overwritten(here: PostgresClaims, there: PostgresClaims) -> None:
    claim, first = a_claim(), a_result()
    await here.acquire(claim)
    await here.settle(claim, ClaimOutcome(claim.invocation_id, first))
    with pytest.raises(ClaimLostError):
        await here.settle(claim, ClaimOutcome(claim.invocation_id, a_result()))
    await here.release(claim)
    await here.abandon(claim)
    assert await there.acquire(a_claim()) == ClaimOutcome(claim.invocation_id, first)


@pytest.mark.parametrize("repeatable", [True, False])
async def test_a_dead_owner_is_replaced_by_exactly_one(
    here: PostgresClaims, there: PostgresClaims, engine: AsyncEngine, repeatable: bool
) -> None:
    await here.acquire(a_claim(repeatable=repeatable))
    await age(engine, "lease_until")
    calls = [asyncio.ensure_future(side.acquire(a_claim(repeatable=repeatable))) for side in (here, there) * 5]
    await until(lambda: here._waiters.scopes and there._waiters.scopes and any(call.done() for call in calls))
    assert len([call for call in calls if call.done()]) == 1
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)


async def test_a_waiter_takes_over_from_a_dead_owner(
    here: PostgresClaims, there: PostgresClaims, engine: AsyncEngine
) -> None:
    await here.acquire(a_claim())
    waiting = asyncio.ensure_future(there.acquire(a_claim()))
    await until(lambda: there._waiters.scopes)
    await age(engine, "lease_until")
    assert isinstance(await waiting, UnresolvedClaim)


async def test_a_dead_owner_of_a_write_leaves_an_unknown_outcome(
    here: PostgresClaims, there: PostgresClaims, engine: AsyncEngine
) -> None:
    lost, resolver = a_claim(), a_claim()
    await here.acquire(lost)
    await age(engine, "lease_until")
    doubted = await there.acquire(resolver)
    assert isinstance(doubted, UnresolvedClaim)
    assert isinstance(doubted.outcome, MeshError)
    assert (doubted.outcome.reason, doubted.runs) == (Reason.UNKNOWN_OUTCOME, (lost.invocation_id,))
    assert there.is_held(resolver)
    await there.settle(resolver, ClaimOutcome(lost.invocation_id, doubted.outcome))
    with pytest.raises(ClaimLostError):
        await here.settle(lost, ClaimOutcome(lost.invocation_id, a_result()))
    for side in (here, there):
        settled = await side.acquire(a_claim())
        assert settled is not None
        assert isinstance(settled.outcome, MeshError)
        assert settled.outcome.reason is Reason.UNKNOWN_OUTCOME
        assert settled.outcome.metadata["first_invocation"] == lost.invocation_id


async def test_a_resolver_that_dies_is_recorded_as_unknown_too(here: PostgresClaims, engine: AsyncEngine) -> None:
    claims = [a_claim() for _ in range(3)]
    for claim in claims:
        settled = await here.acquire(claim)
        await age(engine, "lease_until")
    assert isinstance(settled, UnresolvedClaim)
    assert settled.runs == tuple(claim.invocation_id for claim in claims[:2])


async def test_releasing_an_unknown_outcome_restores_it_with_its_window(
    here: PostgresClaims, there: PostgresClaims, engine: AsyncEngine
) -> None:
    dead = [a_claim(), a_claim()]
    for claim in dead:
        await here.acquire(claim)
        await age(engine, "lease_until")
    for _ in range(3):
        resolver = a_claim()
        settled = await there.acquire(resolver)
        assert isinstance(settled, UnresolvedClaim)
        assert settled.runs == tuple(claim.invocation_id for claim in dead)
        await there.release(resolver)


async def test_a_late_owner_can_settle_before_a_takeover(
    here: PostgresClaims, there: PostgresClaims, engine: AsyncEngine
) -> None:
    late, resolver, result = a_claim(), a_claim(), a_result()
    await here.acquire(late)
    await age(engine, "lease_until")
    await there.acquire(resolver)
    await there.release(resolver)
    await here.settle(late, ClaimOutcome(late.invocation_id, result))
    assert await there.acquire(a_claim()) == ClaimOutcome(late.invocation_id, result)


async def test_the_number_of_repetitions_is_bounded(here: PostgresClaims, engine: AsyncEngine) -> None:
    for _ in range(MOST_RUNS):
        assert await here.acquire(a_claim(repeatable=True)) is None
        await age(engine, "lease_until")
    assert isinstance(await here.acquire(a_claim(repeatable=True)), UnresolvedClaim)


async def test_an_abandoned_claim_is_unknown_at_once(here: PostgresClaims, there: PostgresClaims) -> None:
    claim = a_claim()
    await here.acquire(claim)
    await here.abandon(claim)
    settled = await there.acquire(a_claim())
    assert isinstance(settled, UnresolvedClaim)
    assert settled.runs == (claim.invocation_id,)


async def test_other_arguments_conflict_with_an_unknown_outcome(
    here: PostgresClaims, there: PostgresClaims, engine: AsyncEngine
) -> None:
    await here.acquire(a_claim())
    await age(engine, "lease_until")
    error = await refusal(there.acquire(a_claim(arguments_digest="sha256:b")))
    assert error.reason is Reason.IDEMPOTENCY_CONFLICT


async def test_an_unknown_outcome_ends_with_its_window(here: PostgresClaims, engine: AsyncEngine) -> None:
    await here.acquire(a_claim())
    await age(engine, "lease_until")
    await age(engine, "expire_time")
    assert await here.acquire(a_claim()) is None
    [row] = await rows(engine)
    assert row.doubted == ""


async def test_an_expired_claim_is_new(here: PostgresClaims, there: PostgresClaims, engine: AsyncEngine) -> None:
    claim = a_claim()
    await here.acquire(claim)
    await here.settle(claim, ClaimOutcome(claim.invocation_id, a_result()))
    await age(engine, "expire_time")
    assert await there.acquire(a_claim(arguments_digest="sha256:other")) is None
    [row] = await rows(engine)
    assert (row.state, row.result, row.arguments_digest) == ("running", None, "sha256:other")


async def test_sweep_deletes_only_expired_claims(here: PostgresClaims, engine: AsyncEngine) -> None:
    await here.acquire(a_claim(key="old"))
    await age(engine, "expire_time")
    await here.acquire(a_claim(key="new"))
    assert await here.sweep() == 1
    assert await here.sweep() == 0
    assert [row.key for row in await rows(engine)] == ["new"]


async def test_the_window_begins_at_the_end_of_the_call(here: PostgresClaims, engine: AsyncEngine) -> None:
    claim = a_claim()
    await here.acquire(claim)
    await age(engine, "expire_time")
    await here.settle(claim, ClaimOutcome(claim.invocation_id, a_result()))
    async with engine.begin() as connection:
        left = await connection.scalar(select(table.c.expire_time > func.now()))
    assert left


async def test_a_failing_database_is_service_unavailable() -> None:
    engine = engine_for("postgresql://executor:test@127.0.0.1:1/none", schema="executor")
    error = await refusal(PostgresClaims(engine, "executor-0", Seal([KEY]), encode_record).acquire(a_claim()))
    assert error.reason is Reason.SERVICE_UNAVAILABLE
    await engine.dispose()
