"""Effects that are made real while their caller leaves: no other call begins before, and what they came to is
known.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from services.executor.domain import run_errors
from services.executor.domain.run import RunResult
from services.executor.domain.states import State
from services.executor.domain.tool import Placement
from services.executor.tests.fakes import World
from services.executor.tests.samples import a_request, a_write_tool
from services.executor.tests.waiting import until

SINGLE = Placement(concurrency_safe=True, max_concurrency=1)


class Keeping(World):
    """A world with a tool of one place, whose effects become real, or go, when a test lets them."""

    def __init__(self, value: Any = None) -> None:
        super().__init__(a_write_tool(placement=SINGLE, key_required=False), audit_wait=2.0)
        self.seen: list[str] = []
        self.go = asyncio.Event()
        self.failure_of_keep: MeshError | None = None
        self._value = value or {"said": "x"}
        self.runner.run = self._run  # type: ignore[method-assign]

    async def _run(self, tool: Any, work: Any) -> RunResult:
        work.begin()
        number = sum(step.startswith("run") for step in self.seen) + 1
        self.seen.append(f"run {number}")
        return RunResult(
            self._value, commit=lambda: self._step("keep", number), rollback=lambda: self._step("drop", number)
        )

    async def _step(self, what: str, number: int) -> None:
        self.seen.append(f"{what} {number} begins")
        await self.go.wait()
        self.seen.append(f"{what} {number} done")
        if self.failure_of_keep is not None:
            raise self.failure_of_keep

    async def begun(self, **changes: Any) -> asyncio.Task[Any]:
        """Return a call whose effects are just being made real, or thrown away."""
        call = asyncio.ensure_future(self.invoke.execute(a_request(**changes)))
        await until(lambda: any(step.endswith("begins") for step in self.seen))
        return call


async def leaves(call: asyncio.Task[Any], times: int = 1) -> None:
    for _ in range(times):
        call.cancel()
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize(("value", "what"), [({"said": "x"}, "keep"), ({"wrong": 1}, "drop")])
async def test_the_next_turn_begins_when_the_effects_of_the_one_before_are_settled(
    value: Any, what: str, times: int
) -> None:
    world = Keeping(value)
    first = await world.begun()
    second = asyncio.ensure_future(world.invoke.execute(a_request()))
    await until(lambda: world.pipeline.ports.slots._scheduler.length == 1)
    await leaves(first, times)
    assert world.seen == ["run 1", f"{what} 1 begins"]
    world.go.set()
    await asyncio.wait([first, second])
    assert world.seen == [step for n in (1, 2) for step in (f"run {n}", f"{what} {n} begins", f"{what} {n} done")]
    assert isinstance(second.exception(), MeshError) is (what == "drop")


async def test_the_committed_result_is_the_answer_of_the_key() -> None:
    world = Keeping()
    first = await world.begun(idempotency_key="k")
    await leaves(first)
    world.go.set()
    await asyncio.wait([first])
    assert first.cancelled()
    assert (await world.invoke.execute(a_request(idempotency_key="k"))).content == b'{"said":"x"}'
    assert [step for step in world.seen if step.startswith("run")] == ["run 1"]
    assert world.trail.durable[1].state is State.SUCCEEDED


async def test_what_became_real_only_in_part_is_on_record_as_that() -> None:
    world = Keeping()
    world.failure_of_keep = run_errors.partly_kept(1, 2, "failed")
    first = await world.begun(idempotency_key="k")
    await leaves(first)
    world.go.set()
    await asyncio.wait([first])
    assert world.trail.durable[-1].reason is Reason.PARTIAL_FAILURE
    assert (await world.failure(a_request(idempotency_key="k"))).reason is Reason.UNKNOWN_OUTCOME


async def test_who_was_stopped_meanwhile_hears_so_and_its_key_knows_the_result() -> None:
    world = Keeping()
    first = await world.begun(idempotency_key="k")
    assert world.pipeline.supervisor.active.cancel_revoked(lambda caller: True) == 1
    world.go.set()
    with pytest.raises(MeshError) as caught:
        await first
    assert caught.value.reason is Reason.TOKEN_REVOKED
    assert (await world.invoke.execute(a_request(idempotency_key="k"))).replayed


async def test_when_the_time_is_over_meanwhile_the_record_has_its_own() -> None:
    world, given = Keeping(), []
    conclude = world.trail.conclude

    async def noted(record: Any, *, within: float) -> None:
        given.append(within)
        await conclude(record, within=within)

    world.trail.conclude = noted  # type: ignore[method-assign]
    end = time.monotonic() + 0.2
    first = await world.begun(idempotency_key="k", deadline=end)
    await until(lambda: time.monotonic() > end)
    await leaves(first)
    world.go.set()
    with pytest.raises(MeshError) as caught:
        await first
    assert (caught.value.reason, given) == (Reason.DEADLINE_EXCEEDED, [2.0])
    assert (await world.invoke.execute(a_request(idempotency_key="k"))).replayed


async def test_a_caller_that_leaves_is_not_held_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.executor.domain.scheduling.shielded.CANCEL_WAIT_SECONDS", 0.05)
    world = Keeping()
    first = await world.begun(idempotency_key="k")
    first.cancel()
    await asyncio.wait_for(asyncio.wait([first]), 20)
    assert first.cancelled()
    assert "keep 1 done" not in world.seen
    assert (await world.failure(a_request(idempotency_key="k"))).reason is Reason.UNKNOWN_OUTCOME
    world.go.set()
    await until(lambda: "keep 1 done" in world.seen)
