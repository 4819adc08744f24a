"""Invocations wait for their turn within the time that they have."""

from __future__ import annotations

import time
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import SystemClock
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Obligation
from services.executor.domain.scheduling.scheduler import Bounds, Scheduler
from services.executor.domain.scheduling.slots import SlotPool
from services.executor.domain.states import State
from services.executor.domain.tool import Placement, Tool
from services.executor.tests.samples import a_caller, a_decision, a_request, a_tool

SINGLE = a_tool(placement=Placement(concurrency_safe=True, max_concurrency=1))


def turns(**bounds: Any) -> SlotPool:
    return SlotPool(Scheduler(SystemClock(), Bounds(**bounds)), SystemClock())


def approved(**changes: Any) -> Invocation:
    invocation = Invocation(a_request(**changes), SystemClock(), None)
    for state in (State.SELECTED, State.ARGUMENTS_READY, State.APPROVED):
        invocation.enter(state)
    return invocation


async def refusal(given: SlotPool, invocation: Invocation) -> Reason:
    with pytest.raises(MeshError) as caught:
        async with given.slot(invocation, SINGLE):
            raise AssertionError
    return caught.value.reason


@pytest.mark.parametrize(
    ("tool", "free"), [(a_tool(placement=Placement(concurrency_safe=True)), True), (SINGLE, False)]
)
def test_whether_a_version_needs_a_turn_is_asked_once(tool: Tool, free: bool) -> None:
    given = turns()
    assert [given.needs_no_slot(tool), given.needs_no_slot(tool)] == [free, free]
    assert len(given._slotless) == 1


def test_what_is_remembered_about_versions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.executor.domain.scheduling.slots._MAX_REMEMBERED", 2)
    given = turns()
    for number in range(5):
        assert not given.needs_no_slot(a_tool(digest=str(number), placement=Placement()))
    assert len(given._slotless) <= 2


async def test_a_call_that_need_not_wait_is_not_queued() -> None:
    given = turns()
    for _ in range(2):
        invocation = approved(deadline=None)
        async with given.slot(invocation, SINGLE):
            assert invocation.state is State.APPROVED


async def test_who_waits_is_queued_and_time_that_ends_meanwhile_is_the_callers() -> None:
    given, waiting = turns(), approved(deadline=time.monotonic() + 0.05)
    async with given.slot(approved(), SINGLE):
        assert await refusal(given, waiting) is Reason.DEADLINE_EXCEEDED
    assert waiting.state is State.QUEUED


async def test_authority_that_ends_while_waiting_ends_the_waiting() -> None:
    given = turns()
    caller = a_caller(authority_ends=time.time() + 0.05)
    async with given.slot(approved(), SINGLE):
        assert await refusal(given, approved(caller=caller)) is Reason.TOKEN_EXPIRED


async def test_who_finds_no_room_to_wait_is_refused_and_never_queued() -> None:
    given, refused = turns(waiting=1), approved()
    holder, waiter = given.slot(approved(), SINGLE), given._scheduler.slot(SINGLE, {})
    async with holder:
        assert not given._scheduler.enter(waiter)
        assert await refusal(given, refused) is Reason.QUEUE_FULL
    assert refused.state is State.APPROVED


def level_of(invocation: Invocation) -> float:
    """The priority that the slot of a call has, as the scheduler ranks it."""
    slot = turns(aging=1e6).slot(invocation, SINGLE)._slot
    return round((time.monotonic() - slot.rank[0]) / 1e6)


@pytest.mark.parametrize(("asked", "level"), [(0, 5), (1, 1), (5, 5), (6, 5), (10, 5)])
async def test_a_caller_may_lower_the_priority_of_the_tool_and_not_raise_it(asked: int, level: int) -> None:
    assert level_of(approved(priority=asked)) == level


@pytest.mark.parametrize(("asked", "level"), [(0, 5), (9, 8), (7, 7)])
async def test_policy_may_allow_a_higher_priority(asked: int, level: int) -> None:
    invocation = approved(priority=asked)
    invocation.decision = a_decision(obligations=(Obligation("max_priority", ("8",)),))
    assert level_of(invocation) == level


async def test_a_slot_belongs_to_the_tenant_and_subject_of_its_caller() -> None:
    slot = turns().slot(approved(caller=a_caller(tenant="acme", subject="ada")), SINGLE)._slot
    assert (slot.tenant, slot.subject) == ("acme", "ada")
