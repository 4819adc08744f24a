"""Policy sets, activations and replicas that follow them, with a real database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.audit_client.act import ActEncoder
from libs.audit_client.outbox import ActRecorder
from libs.common.errors import MeshError, Reason
from libs.common.sql.engine import engine_for, transaction
from libs.common.telemetry.log import Log
from services.authz.adapters.cedar.active_sets import ActivePolicySets
from services.authz.adapters.cedar.compiler import compiler_for, read_documents
from services.authz.adapters.postgres.policy_sets import PostgresPolicySets
from services.authz.adapters.postgres.tables import activations, invalidations
from services.authz.domain.policies.model import NewPolicySet
from services.authz.tests.adapters.cedar.test_engine import make_request
from services.authz.tests.policy_texts import forbid, permit
from services.authz.wiring import POLICIES

NOW = datetime(2026, 1, 1, tzinfo=UTC)
COMPILER = compiler_for(POLICIES)


def set_of(*policies: str, comment: str = "") -> NewPolicySet:
    documents = {"a.cedar": "\n".join(policies)}
    return NewPolicySet(COMPILER.version(documents), documents, len(policies), comment, "operator", NOW)


@pytest.fixture
async def engine(database: Callable[[str], str]) -> AsyncIterator[AsyncEngine]:
    engine = engine_for(database("authz"), schema="authz")
    yield engine
    await engine.dispose()


@pytest.fixture
def sets(engine: AsyncEngine) -> PostgresPolicySets:
    return PostgresPolicySets(engine, ActRecorder(ActEncoder("authz")))


async def kinds(engine: AsyncEngine) -> list[str]:
    async with transaction(engine) as connection:
        return list((await connection.execute(select(invalidations.c.kind))).scalars())


async def test_a_set_is_stored_unchanged_and_equal_content_is_one_set(sets: PostgresPolicySets) -> None:
    first = await sets.put(set_of(permit("p"), comment="first"))
    again = await sets.put(set_of(permit("p"), comment="again"))
    other = await sets.put(set_of(permit("q")))
    assert (first.number, again.number, other.number) == (1, 1, 2)
    assert again.comment == "first"
    found = await sets.find(1)
    assert found is not None
    assert (found.documents, found.policy_count, found.put_by, found.active) == (first.documents, 1, "operator", False)
    assert await sets.find(3) is None
    assert await sets.active() is None


async def test_an_activation_is_appended_to_the_feed_and_checks_the_expected_set(
    sets: PostgresPolicySets, engine: AsyncEngine
) -> None:
    for name in ("a", "b", "c"):
        await sets.put(set_of(permit(name)))
    await sets.activate(1, None, "operator", NOW)
    await sets.activate(2, 1, "operator", NOW)
    assert await kinds(engine) == ["policy_set", "policy_set"]
    with pytest.raises(MeshError) as caught:
        await sets.activate(3, 1, "operator", NOW)
    assert caught.value.reason is Reason.FAILED_PRECONDITION
    with pytest.raises(MeshError) as caught:
        await sets.activate(9, None, "operator", NOW)
    assert caught.value.reason is Reason.NOT_FOUND
    active = await sets.active()
    assert active is not None
    assert (active.number, active.active, active.activate_time) == (2, True, NOW)
    assert await kinds(engine) == ["policy_set", "policy_set"]


async def test_going_back_goes_back_further_each_time_and_ends_at_the_first(sets: PostgresPolicySets) -> None:
    for number, name in enumerate(("a", "b", "c"), start=1):
        await sets.put(set_of(permit(name)))
        await sets.activate(number, None, "operator", NOW)
    assert [(await sets.roll_back(None, "operator", NOW)).number for _ in range(2)] == [2, 1]
    for expected in (None, 1):
        with pytest.raises(MeshError) as caught:
            await sets.roll_back(expected, "operator", NOW)
        assert caught.value.reason is Reason.FAILED_PRECONDITION
    # From there it goes on as ever.
    await sets.activate(3, 1, "operator", NOW)
    assert (await sets.roll_back(3, "operator", NOW)).number == 1


async def test_activating_the_active_set_changes_nothing(sets: PostgresPolicySets, engine: AsyncEngine) -> None:
    await sets.put(set_of(permit("a")))
    for _ in range(3):
        await sets.activate(1, None, "operator", NOW)
    assert await kinds(engine) == ["policy_set"]


async def test_one_of_concurrent_activations_with_the_same_expectation_wins(sets: PostgresPolicySets) -> None:
    for name in ("a", "b", "c", "d", "e"):
        await sets.put(set_of(permit(name)))
    await sets.activate(1, None, "operator", NOW)
    generator = [sets.activate(number, 1, "operator", NOW) for number in (2, 3, 4, 5)]
    outcomes = await asyncio.gather(*generator, return_exceptions=True)
    assert sum(not isinstance(outcome, Exception) for outcome in outcomes) == 1


async def test_pages_lead_through_all_sets_newest_first(sets: PostgresPolicySets) -> None:
    for name in ("a", "b", "c"):
        await sets.put(set_of(permit(name)))
    assert [each.number for each in await sets.page(None, 2)] == [3, 2]
    (last,) = await sets.page(2, 2)
    assert (last.number, last.documents) == (1, {})


async def test_one_of_several_replicas_that_start_at_once_seeds(engine: AsyncEngine) -> None:
    shipped = read_documents(POLICIES)
    first = NewPolicySet(COMPILER.version(shipped), shipped, 9, "", "authz", NOW)
    replicas = [
        ActivePolicySets(
            PostgresPolicySets(engine, ActRecorder(ActEncoder("authz"))), COMPILER, Log("authz", level="error")
        )
        for _ in range(4)
    ]
    await asyncio.gather(*(replica.start(first) for replica in replicas))
    assert {replica.version for replica in replicas} == {first.version}
    async with transaction(engine) as connection:
        rows = (await connection.execute(select(activations))).all()
    assert [(row.set_number, row.activated_by) for row in rows] == [(1, "authz")]


async def test_a_replica_follows_the_pointer_and_keeps_old_sets_for_questions(
    engine: AsyncEngine, sets: PostgresPolicySets
) -> None:
    open_set, closed_set = set_of(permit("p")), set_of(permit("p"), forbid("f"))
    ours, theirs = (
        ActivePolicySets(
            PostgresPolicySets(engine, ActRecorder(ActEncoder("authz"))), COMPILER, Log("authz", level="error")
        )
        for _ in range(2)
    )
    await ours.start(open_set)
    await theirs.start(set_of(permit("never seeded")))
    assert theirs.version == open_set.version
    await sets.put(closed_set)
    await sets.activate(2, 1, "operator", NOW)
    await ours.refresh()
    assert (ours.version, theirs.version) == (closed_set.version, open_set.version)
    await theirs.refresh()
    assert theirs.version == closed_set.version
    old = await theirs.engine_for(open_set.version)
    assert old is not None
    assert [finding.policy for finding in old.findings(make_request())] == ["p"]
    assert await theirs.engine_for("sha256:unknown") is None


async def test_before_the_first_set_there_is_no_decision(engine: AsyncEngine) -> None:
    empty = ActivePolicySets(
        PostgresPolicySets(engine, ActRecorder(ActEncoder("authz"))), COMPILER, Log("authz", level="error")
    )
    with pytest.raises(MeshError) as caught:
        assert empty.current
    assert caught.value.reason is Reason.POLICY_ENGINE_ERROR
    assert empty.version == ""


async def test_a_canceled_refresh_leaves_its_compilation_to_the_next(engine: AsyncEngine, monkeypatch: Any) -> None:
    """The follower of the feed has little patience, and a large set takes long to compile."""
    compiler = compiler_for(POLICIES)
    began, go_on, compiled = asyncio.Event(), asyncio.Event(), []
    active = ActivePolicySets(
        PostgresPolicySets(engine, ActRecorder(ActEncoder("authz"))), compiler, Log("authz", level="error")
    )

    async def slowly(stored: Any) -> Any:
        compiled.append(stored.number)
        began.set()
        await go_on.wait()
        return await original(stored)

    original = active._compile
    monkeypatch.setattr(active, "_compile", slowly)
    waiting = asyncio.create_task(active.start(set_of(permit("p"))))
    await began.wait()
    waiting.cancel()
    await asyncio.wait({waiting})
    assert active.version == ""
    go_on.set()
    await active.refresh()
    assert (active.version, compiled) == (set_of(permit("p")).version, [1])


async def test_while_the_active_set_is_made_ready_nothing_is_decided_by_the_one_before_for_long(
    engine: AsyncEngine, sets: PostgresPolicySets, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = set_of(permit("p")), set_of(permit("p"), forbid("f"))
    quiet, go_on, began = Log("authz", level="error"), asyncio.Event(), asyncio.Event()
    patient, hasty = (ActivePolicySets(sets, COMPILER, quiet, follow_seconds=seconds) for seconds in (600, 0))
    for active in (patient, hasty):
        await active.start(first)
    await sets.put(second)
    await sets.activate(2, 1, "operator", NOW)

    async def slowly(active: ActivePolicySets, stored: Any) -> Any:
        began.set()
        await go_on.wait()
        return await ActivePolicySets._compile(active, stored)

    for active in (patient, hasty):
        monkeypatch.setattr(active, "_compile", partial(slowly, active))
        refreshing = asyncio.create_task(active.refresh())
        await began.wait()
        began.clear()
        assert (active.version, active.active_version) == (first.version, second.version)
        if active is patient:
            assert active.current.version == first.version
        else:
            with pytest.raises(MeshError) as caught:
                assert active.current
            assert caught.value.reason is Reason.SERVICE_UNAVAILABLE
        go_on.set()
        await refreshing
        go_on.clear()
        assert active.current.version == active.active_version == second.version


async def test_a_set_that_could_not_be_made_ready_for_once_is_tried_again(
    engine: AsyncEngine, sets: PostgresPolicySets, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = set_of(permit("p")), set_of(permit("p"), forbid("f"))
    compiler = compiler_for(POLICIES)
    active = ActivePolicySets(sets, compiler, Log("authz", level="error"))
    await active.start(first)
    await sets.put(second)
    await sets.activate(2, 1, "operator", NOW)

    def exhausted(documents: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as poor:
        poor.setattr(compiler, "compile", exhausted)
        with pytest.raises(MemoryError):
            await active.refresh()
    assert (active.version, active.active_version) == (first.version, second.version)
    await active.refresh()
    assert active.current.version == second.version
