"""Exactly one effect: calls with an idempotency key."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from services.executor.domain import errors
from services.executor.domain.model import Claim, ClaimOutcome, Event, Source, Verdict
from services.executor.domain.states import State
from services.executor.tests.fakes import World, never_ends
from services.executor.tests.samples import a_caller, a_decision, a_request, a_tool, a_write_tool
from services.executor.tests.waiting import until


async def test_a_write_tool_that_demands_a_key_is_not_called_without_one() -> None:
    world = World(a_write_tool())
    error = await world.failure(a_request())
    assert error.reason is Reason.IDEMPOTENCY_KEY_REQUIRED
    assert world.trail.durable[0].state is State.VALIDATION_FAILED
    assert world.runner.calls == []


async def test_without_a_key_no_claim_is_made() -> None:
    world = World()
    world.claims.acquire = None  # type: ignore[method-assign, assignment]
    await world.invoke.execute(a_request())


async def test_the_same_key_answers_the_first_result_and_both_answers_are_on_record() -> None:
    world = World(a_write_tool())
    first = await world.invoke.execute(a_request(idempotency_key="k", trace_id="a" * 32))
    second = await world.invoke.execute(a_request(idempotency_key="k", trace_id="b" * 32))
    assert len(world.runner.calls) == 1
    assert (second.content, second.result_id) == (first.content, first.result_id)
    assert (second.replayed, second.source, second.trace_id) == (True, Source.REPLAY, "b" * 32)
    outcomes = [record for record in world.trail.durable if record.event is Event.SUCCEEDED]
    assert [record.replayed for record in outcomes] == [False, True]
    assert outcomes[0].result == outcomes[1].result
    assert (outcomes[1].previous_state, outcomes[1].attempt) == (State.APPROVED, 0)
    assert second.evidence == (*first.evidence, *(f"records/{record.record_id}" for record in world.trail.durable[2:]))


async def test_calls_at_the_same_time_share_one_run() -> None:
    world = World(a_write_tool())
    go = asyncio.Event()

    async def wait(arguments: dict[str, Any]) -> Any:
        await go.wait()
        return {"said": "once"}

    world.runner.behave = wait
    calls = [asyncio.ensure_future(world.invoke.execute(a_request(idempotency_key="k"))) for _ in range(20)]
    await world.runner.started.wait()
    go.set()
    results = await asyncio.gather(*calls)
    assert len(world.runner.calls) == 1
    assert sum(not result.replayed for result in results) == 1
    assert {result.content for result in results} == {b'{"said":"once"}'}


async def test_the_same_key_with_other_arguments_conflicts() -> None:
    world = World(a_write_tool())
    await world.invoke.execute(a_request(idempotency_key="k"))
    error = await world.failure(a_request(idempotency_key="k", arguments=b'{"text":"other"}'))
    assert error.reason is Reason.IDEMPOTENCY_CONFLICT
    assert len(world.runner.calls) == 1


async def test_a_default_that_changed_between_versions_is_no_conflict() -> None:
    world = World(a_write_tool())
    await world.invoke.execute(a_request(idempotency_key="k"))
    schema = {"type": "object", "properties": {"text": {"type": "string"}, "count": {"default": 9}}}
    world.tools.tools["say"] = a_write_tool(input_schema=schema)
    assert (await world.invoke.execute(a_request(idempotency_key="k"))).replayed


async def test_keys_of_different_sessions_callers_and_tenants_are_different_keys() -> None:
    world = World(a_write_tool())
    changes = [{}, {"session_id": "other"}, {"subject": "did:web:toolmesh.local:users:bob"}, {"tenant": "acme"}]
    for change in changes:
        await world.invoke.execute(a_request(idempotency_key="k", caller=a_caller(**change)))
    assert len(world.runner.calls) == 4


async def test_a_renewed_token_of_one_subject_gets_the_first_result() -> None:
    world = World(a_write_tool())
    callers = [a_caller(session_id="", token_id=token) for token in ("t1", "t1", "t2")]
    results = [await world.invoke.execute(a_request(idempotency_key="k", caller=caller)) for caller in callers]
    assert len(world.runner.calls) == 1
    assert [result.replayed for result in results] == [False, True, True]
    assert len({result.result_id for result in results}) == 1


async def test_a_failure_that_may_pass_gives_the_key_back() -> None:
    world = World(a_write_tool())

    async def unlucky(arguments: dict[str, Any]) -> Any:
        raise MeshError(Reason.EXTERNAL_UNAVAILABLE)

    world.runner.behave = unlucky
    await world.failure(a_request(idempotency_key="k"))
    assert world.claims.held == {}


async def test_a_final_failure_is_the_answer_to_every_further_call() -> None:
    world = World(a_write_tool())

    async def fail(arguments: dict[str, Any]) -> Any:
        raise errors.execution_failed("no")

    world.runner.behave = fail
    first = await world.failure(a_request(idempotency_key="k"))
    first_id = first.invocation_id
    second = await world.failure(a_request(idempotency_key="k"))
    assert (second.reason, second.metadata["first_invocation"]) == (Reason.EXECUTION_FAILED, first_id)
    assert second.invocation_id != first_id
    assert len(world.runner.calls) == 1
    assert world.trail.durable[-1].replayed


@pytest.mark.parametrize("changes", [{"arguments": b"{}"}, {"tool": "nobody"}])
async def test_a_call_that_was_refused_before_it_ran_binds_no_key(changes: dict[str, Any]) -> None:
    world = World(a_write_tool())
    await world.failure(a_request(idempotency_key="k", **changes))
    assert not (await world.invoke.execute(a_request(idempotency_key="k"))).replayed


async def test_who_may_no_longer_call_does_not_get_the_stored_result_either() -> None:
    world = World(a_write_tool())
    await world.invoke.execute(a_request(idempotency_key="k"))
    world.policy.answer = a_decision(Verdict.DENY)
    assert (await world.failure(a_request(idempotency_key="k"))).reason is Reason.SCOPE_MISSING


async def test_a_lost_owner_of_a_repeatable_tool_is_replaced() -> None:
    world = World(a_tool())
    await hold_forever(world)
    result = await world.invoke.execute(a_request(idempotency_key="k"))
    assert not result.replayed


async def test_a_lost_owner_of_a_write_leaves_an_unknown_outcome() -> None:
    world = World(a_write_tool())
    await hold_forever(world)
    error = await world.failure(a_request(idempotency_key="k"))
    assert error.reason is Reason.UNKNOWN_OUTCOME


async def hold_forever(world: World) -> None:
    """Leave a key as a process does that was killed while its tool ran."""
    settle, release = world.claims.settle, world.claims.release

    async def lost(*anything: Any) -> None:
        """A dead process says nothing."""

    world.claims.settle = world.claims.release = lost  # type: ignore[assignment, method-assign]
    world.runner.behave = never_ends
    call = asyncio.ensure_future(world.invoke.execute(a_request(idempotency_key="k")))
    await world.runner.started.wait()
    call.cancel()
    await asyncio.wait([call])
    world.claims.settle, world.claims.release = settle, release  # type: ignore[method-assign]
    [(claim, _)] = world.claims.held.values()
    world.claims.lost_owners.add(claim.invocation_id)
    world.runner.behave = World().runner.behave


async def test_a_caller_that_leaves_a_repeatable_tool_gives_the_key_back() -> None:
    world = World(a_tool())
    world.runner.behave = never_ends
    call = asyncio.ensure_future(world.invoke.execute(a_request(idempotency_key="k")))
    await world.runner.started.wait()
    call.cancel()
    await asyncio.wait([call])
    assert world.claims.held == {}


async def test_when_the_outcome_is_not_recorded_the_result_is_kept_for_the_retry() -> None:
    world = World(a_write_tool())
    world.trail.withholds = lambda record: record.event is Event.SUCCEEDED
    error = await world.failure(a_request(idempotency_key="k"))
    assert error.reason is Reason.AUDIT_UNAVAILABLE
    world.trail.withholds = lambda record: False
    assert (await world.invoke.execute(a_request(idempotency_key="k"))).replayed
    assert len(world.runner.calls) == 1


async def test_when_the_decision_is_not_recorded_the_key_is_free() -> None:
    world = World(a_write_tool())
    world.trail.withholds = lambda record: record.event is Event.PERMISSION_DECIDED
    await world.failure(a_request(idempotency_key="k"))
    assert world.claims.held == {}


async def test_a_memory_that_fails_after_the_run_does_not_take_the_result_from_its_caller() -> None:
    world = World(a_write_tool())
    world.claims.failure = MeshError(Reason.SERVICE_UNAVAILABLE)
    result = await world.invoke.execute(a_request(idempotency_key="k"))
    assert result.content == b'{"said":"hello"}'
    assert world.watcher.seen.causes == [world.claims.failure]


async def test_a_store_that_comes_back_learns_how_the_call_ended() -> None:
    world = World(a_write_tool())
    world.claims.failure = MeshError(Reason.SERVICE_UNAVAILABLE)
    first = await world.invoke.execute(a_request(idempotency_key="k"))
    world.claims.failure = None
    again = await asyncio.wait_for(world.invoke.execute(a_request(idempotency_key="k", deadline=None)), 20)
    assert (again.replayed, again.result_id) == (True, first.result_id)
    assert len(world.runner.calls) == 1


async def test_a_store_that_comes_back_learns_of_a_failure_too() -> None:
    world = World(a_write_tool())

    async def fails(arguments: dict[str, Any]) -> Any:
        raise errors.execution_failed("it broke")

    world.runner.behave = fails
    world.claims.failure = MeshError(Reason.SERVICE_UNAVAILABLE)
    await world.failure(a_request(idempotency_key="k"))
    world.claims.failure = None
    error = await asyncio.wait_for(world.failure(a_request(idempotency_key="k", deadline=None)), 20)
    assert error.reason is Reason.EXECUTION_FAILED
    assert len(world.runner.calls) == 1


async def test_failures_of_background_updates_are_logged() -> None:
    world = World(a_write_tool())
    world.claims.failure = MeshError(Reason.SERVICE_UNAVAILABLE)
    await world.invoke.execute(a_request(idempotency_key="k"))
    world.claims.failure = broken = TypeError()
    await asyncio.wait_for(asyncio.gather(*world.pipeline.steps._tasks), 20)
    assert world.watcher.seen.causes[-1] is broken


async def test_a_memory_that_could_not_be_asked_for_a_key_is_not_told_again_and_again() -> None:
    world = World(a_write_tool())

    async def away(claim: Claim, on_wait: Callable[[], None] = lambda: None) -> ClaimOutcome | None:
        raise MeshError(Reason.SERVICE_UNAVAILABLE)

    world.claims.acquire = away  # type: ignore[method-assign]
    world.claims.failure = MeshError(Reason.SERVICE_UNAVAILABLE)
    world.claims.is_held = lambda claim: False  # type: ignore[method-assign]
    await world.failure(a_request(idempotency_key="k"))
    assert world.pipeline.steps._tasks == set()


@pytest.mark.parametrize(
    ("ends", "reason"),
    [
        ({"deadline": 0.05}, Reason.DEADLINE_EXCEEDED),
        ({"authority": 0.05}, Reason.TOKEN_EXPIRED),
        ({"authority": 0.05, "deadline": 30.0}, Reason.TOKEN_EXPIRED),
        ({"authority": 30.0, "deadline": 0.05}, Reason.DEADLINE_EXCEEDED),
    ],
)
async def test_waiting_for_a_key_ends_with_the_callers_time_and_with_its_token(
    ends: dict[str, float], reason: Reason
) -> None:
    world = World(a_write_tool())
    world.runner.behave = never_ends
    first = asyncio.ensure_future(world.invoke.execute(a_request(idempotency_key="k", deadline=None)))
    await world.runner.started.wait()
    caller = a_caller(authority_ends=time.time() + ends["authority"]) if "authority" in ends else a_caller()
    deadline = time.monotonic() + ends["deadline"] if "deadline" in ends else None
    waiting = asyncio.ensure_future(world.failure(a_request(idempotency_key="k", caller=caller, deadline=deadline)))
    await until(waiting.done, 3)
    error = waiting.result()
    assert (error.reason, world.trail.durable[-1].reason) == (reason, reason)
    assert len(world.runner.calls) == 1
    first.cancel()
    await asyncio.wait([first])
