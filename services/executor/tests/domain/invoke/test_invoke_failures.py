"""What goes wrong while a call is under way: time, the caller, the tool, and the log itself."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.testing.clock import ManualClock
from services.executor.domain import errors
from services.executor.domain.model import Event, Record, Status, Verdict
from services.executor.domain.states import State
from services.executor.tests.fakes import World, never_ends
from services.executor.tests.samples import a_caller, a_decision, a_request, a_tool, a_write_tool
from services.executor.tests.waiting import until


def is_decision(record: Record) -> bool:
    return record.event is Event.PERMISSION_DECIDED


def is_outcome(record: Record) -> bool:
    return record.event is not Event.PERMISSION_DECIDED


async def test_nothing_runs_before_the_decision_is_confirmed() -> None:
    world = World()
    world.trail.withholds = is_decision
    error = await world.failure(a_request())
    assert error.reason is Reason.AUDIT_UNAVAILABLE
    assert error.invocation_id
    assert world.runner.calls == []


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [({}, Verdict.ALLOW), ({}, Verdict.DENY), ({}, Verdict.NEEDS_APPROVAL), ({"tool": "nobody"}, Verdict.ALLOW)],
    ids=["failed", "denied", "awaits a person", "never found"],
)
async def test_a_failure_names_the_records_that_hold_its_evidence(changes: dict[str, Any], verdict: Verdict) -> None:
    world = World()
    world.policy.answer = a_decision(verdict)

    async def fail(arguments: dict[str, Any]) -> Any:
        raise MeshError(Reason.EXECUTION_FAILED)

    world.runner.behave = fail
    error = await world.failure(a_request(**changes))
    assert error.evidence == tuple(f"records/{record.record_id}" for record in world.trail.durable)
    assert error.evidence


async def test_the_record_says_how_a_canceled_tool_was_stopped() -> None:
    world = World()

    async def stop(arguments: dict[str, Any]) -> Any:
        raise errors.canceled("not_supported")

    world.runner.behave = stop
    error = await world.failure(a_request())
    assert error.reason is Reason.INVOCATION_CANCELED
    ended = world.trail.durable[-1]
    assert (ended.event, ended.state, ended.cancellation) == (Event.CANCELED, State.CANCELED, "not_supported")


async def test_a_decision_that_came_to_nothing_is_followed_by_its_end_once_the_log_is_back() -> None:
    world = World()
    world.trail.withholds = is_decision
    await world.failure(a_request())
    decided, ended = world.trail.handed_over
    assert (ended.event, ended.reason) == (Event.FAILED, Reason.AUDIT_UNAVAILABLE)
    assert ended.follows == decided.record_id


async def test_a_result_whose_outcome_waits_for_the_log_where_it_cannot_be_lost_is_answered() -> None:
    world = World()
    world.trail.withholds, world.trail.keeps = is_outcome, True
    result = await world.invoke.execute(a_request())
    assert [record.state for record in world.trail.kept] == [State.SUCCEEDED]
    assert result.evidence[-1] == f"records/{world.trail.kept[0].record_id}"
    assert world.trail.steps[-1] == f"kept {Event.SUCCEEDED}"


async def test_the_failure_of_what_ran_waits_for_the_log_as_well() -> None:
    world = World(a_tool(own_limit=0.02))
    world.trail.withholds, world.trail.keeps = is_outcome, True
    world.runner.behave = never_ends
    assert (await world.failure(a_request())).reason is Reason.TOOL_TIMEOUT
    assert [record.state for record in world.trail.kept] == [State.TIMED_OUT]


@pytest.mark.parametrize("changes", [{"tool": "nobody"}, {"arguments": b"{"}])
async def test_what_did_not_run_is_not_kept_back(changes: dict[str, Any]) -> None:
    world = World()
    world.trail.withholds, world.trail.keeps = is_outcome, True
    assert (await world.failure(a_request(**changes))).reason is Reason.AUDIT_UNAVAILABLE
    assert world.trail.kept == []


async def test_while_too_much_waits_for_the_log_nothing_new_begins() -> None:
    world = World()
    world.trail.full = True
    error = await world.failure(a_request())
    assert (error.reason, error.row.code) == (Reason.AUDIT_BACKPRESSURE, "E3803")
    assert (world.runner.calls, world.policy.asked) == ([], [])


async def test_a_result_whose_outcome_is_not_confirmed_is_withheld() -> None:
    world = World()
    world.trail.withholds = is_outcome
    error = await world.failure(a_request())
    assert error.reason is Reason.AUDIT_UNAVAILABLE
    assert error.metadata["tool_ran"] == "true"
    [invocation] = world.watcher.seen.ended
    assert error.invocation_id == invocation.invocation_id
    assert len(world.runner.calls) == 1
    assert [record.state for record in world.trail.handed_over] == [State.APPROVED, State.SUCCEEDED]


@pytest.mark.parametrize("changes", [{"tool": "nobody"}, {"arguments": b"{"}])
async def test_a_refusal_that_cannot_be_recorded_fails_closed(changes: dict[str, Any]) -> None:
    world = World()
    world.trail.withholds = lambda record: True
    error = await world.failure(a_request(**changes))
    assert error.reason is Reason.AUDIT_UNAVAILABLE
    assert error.invocation_id


async def test_waiting_for_the_log_is_bounded_by_the_deadline_and_by_the_setting() -> None:
    world = World(audit_wait=2.0)
    waits: list[float] = []

    async def append(record: Record, *, within: float) -> None:
        waits.append(within)

    world.trail.append = append  # type: ignore[method-assign]
    await world.invoke.execute(a_request(deadline=time.monotonic() + 60))
    await world.invoke.execute(a_request(deadline=time.monotonic() + 1))
    assert waits[:2] == [2.0, 2.0]
    assert all(0 < within < 1 for within in waits[2:])


async def test_a_tool_that_takes_too_long_is_stopped_and_on_record() -> None:
    world = World(a_tool(own_limit=0.02))
    world.runner.behave = never_ends
    error = await world.failure(a_request())
    assert (error.reason, error.metadata["limit_ms"]) == (Reason.TOOL_TIMEOUT, "20")
    assert world.runner.stopped.is_set()
    ended = world.trail.durable[-1]
    assert (ended.event, ended.status, ended.state) == (Event.TIMED_OUT, Status.TIMEOUT, State.TIMED_OUT)


async def test_a_tool_is_stopped_in_time_for_the_callers_own_deadline() -> None:
    world = World(a_tool(own_limit=60.0))
    world.runner.behave = never_ends
    deadline = time.monotonic() + 0.2
    error = await world.failure(a_request(deadline=deadline))
    assert error.reason is Reason.DEADLINE_EXCEEDED
    assert world.runner.stopped.is_set()
    assert world.trail.durable[-1].state is State.TIMED_OUT


async def test_a_tool_does_not_outlive_the_authority_it_runs_under() -> None:
    world = World(a_tool(own_limit=60.0))
    world.runner.behave = never_ends
    caller = a_caller(authority_ends=time.time() + 0.05)
    assert (await world.failure(a_request(caller=caller))).reason is Reason.TOKEN_EXPIRED
    assert world.runner.stopped.is_set()


async def test_a_tool_that_fails_with_a_reason_keeps_it() -> None:
    world = World()

    async def fail(arguments: dict[str, Any]) -> Any:
        raise errors.execution_failed("no paper left")

    world.runner.behave = fail
    error = await world.failure(a_request())
    assert (error.reason, error.message) == (Reason.EXECUTION_FAILED, "no paper left")
    assert world.trail.durable[-1].state is State.FAILED


async def test_a_running_tool_that_finds_fault_with_its_arguments_has_failed() -> None:
    world = World()

    async def complain(arguments: dict[str, Any]) -> Any:
        raise errors.arguments_invalid([])

    world.runner.behave = complain
    await world.failure(a_request())
    assert (world.trail.durable[-1].state, world.trail.durable[-1].event) == (State.FAILED, Event.FAILED)


async def test_an_unexpected_error_is_internal_and_on_record() -> None:
    world = World()

    async def surprise(arguments: dict[str, Any]) -> Any:
        raise ZeroDivisionError("a secret inside")

    world.runner.behave = surprise
    error = await world.failure(a_request())
    assert (error.reason, "secret" in error.message) == (Reason.INTERNAL, False)
    assert error.invocation_id
    assert world.trail.durable[-1].reason is Reason.INTERNAL
    assert isinstance(world.watcher.seen.causes[0], ZeroDivisionError)


async def test_a_caller_that_leaves_while_the_tool_runs_stops_it_and_is_on_record() -> None:
    world = World()
    world.runner.behave = never_ends
    call = asyncio.ensure_future(world.invoke.execute(a_request()))
    await world.runner.started.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert world.runner.stopped.is_set()
    ended = world.trail.durable[-1]
    assert (ended.event, ended.state, ended.reason) == (Event.CANCELED, State.CANCELED, Reason.INVOCATION_CANCELED)
    assert ended.follows == world.trail.durable[0].record_id


async def test_a_caller_that_leaves_while_policy_thinks_is_on_record() -> None:
    world = World()
    world.policy.waiting = asyncio.Event()
    call = asyncio.ensure_future(world.invoke.execute(a_request()))
    await world.policy.reached.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    [record] = world.trail.durable
    assert (record.state, record.follows) == (State.CANCELED, "")


async def test_a_server_that_ends_a_late_call_learns_its_invocation_and_leaves_a_record() -> None:
    clock = ManualClock()
    world = World(clock=clock)
    world.policy.waiting = asyncio.Event()
    call = asyncio.ensure_future(world.invoke.execute(a_request(deadline=1.0)))
    await world.policy.reached.wait()
    clock.advance(0.95)
    call.cancel()
    with pytest.raises(MeshError) as caught:
        await call
    assert caught.value.reason is Reason.DEADLINE_EXCEEDED
    [record] = world.trail.durable
    assert (record.invocation_id, record.state) == (caught.value.invocation_id, State.TIMED_OUT)


async def test_the_end_of_a_canceled_call_is_recorded_even_if_the_caller_insists() -> None:
    world = World()
    world.runner.behave = never_ends
    confirming, reached = asyncio.Event(), asyncio.Event()
    append = world.trail.append

    async def slow(record: Record, *, within: float) -> None:
        if is_outcome(record):
            reached.set()
            await confirming.wait()
        await append(record, within=within)

    world.trail.append = slow  # type: ignore[method-assign]
    call = asyncio.ensure_future(world.invoke.execute(a_request()))
    await world.runner.started.wait()
    call.cancel()
    await reached.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    confirming.set()
    await until(lambda: world.trail.durable[-1].state is State.CANCELED)


async def test_a_caller_that_leaves_after_the_end_changes_nothing() -> None:
    world = World()
    reached = asyncio.Event()
    append = world.trail.append

    async def stuck(record: Record, *, within: float) -> None:
        if is_outcome(record):
            world.trail.handed_over.append(record)
            reached.set()
            await asyncio.Event().wait()
        await append(record, within=within)

    world.trail.append = stuck  # type: ignore[method-assign]
    call = asyncio.ensure_future(world.invoke.execute(a_request()))
    await reached.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert [record.state for record in world.trail.handed_over] == [State.APPROVED, State.SUCCEEDED]


async def test_a_write_that_ran_out_of_time_leaves_its_key_in_doubt() -> None:
    world = World(a_write_tool(own_limit=0.02))
    world.runner.behave = never_ends
    request = a_request(idempotency_key="k")
    assert (await world.failure(request)).reason is Reason.TOOL_TIMEOUT
    again = await world.failure(a_request(idempotency_key="k"))
    assert again.reason is Reason.UNKNOWN_OUTCOME
    assert len(world.runner.calls) == 1
