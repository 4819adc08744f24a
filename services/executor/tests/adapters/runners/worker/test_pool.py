"""The pool of warm workers: bounded, never shared between keys, and fair.

Its processes are fakes at the sandbox's port.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.common.errors import MeshError, Reason
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.worker.pool import PoolLimits, WorkerKey, WorkerPool
from services.executor.adapters.runners.worker.worker import Worker
from services.executor.adapters.sandbox.port import ExitKind, ExitReport
from services.executor.tests.waiting import until

A, B, C = (WorkerKey(f"digest-{name}", f"tenant-{name}", "s") for name in "abc")
A2 = WorkerKey("digest-other", "tenant-a", "s")


def pool_of(**limits: Any) -> WorkerPool[Any]:
    return WorkerPool(PoolLimits(**limits), Log("executor"))


class FakeProcess:
    """A sandboxed process that ends when it is killed."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.stdin: Any = None
        self.stdout: Any = None
        self.event_pipes: Any = None

    async def wait(self) -> ExitReport:
        await self.gone.wait()
        return ExitReport(ExitKind.KILLED)

    async def terminate(self) -> None:
        self.gone.set()

    async def kill(self) -> ExitReport:
        await asyncio.sleep(0)
        self.gone.set()
        return ExitReport(ExitKind.KILLED)


@dataclass
class Starter:
    """Starts workers, and notes for whom."""

    started: Counter[WorkerKey] = field(default_factory=Counter)
    keys: dict[Worker, WorkerKey] = field(default_factory=dict)
    failure: Exception | None = None
    gate: asyncio.Event | None = None

    def of(self, key: WorkerKey) -> Any:
        async def start() -> Worker:
            if self.gate is not None:
                await self.gate.wait()
            await asyncio.sleep(0)
            if self.failure is not None:
                raise self.failure
            worker = Worker(FakeProcess(), 1 << 20)
            self.started[key] += 1
            self.keys[worker] = key
            return worker

        return start

    @property
    def living(self) -> int:
        return sum(not worker.ended.done() for worker in self.keys)


@pytest.fixture
def starter() -> Starter:
    return Starter()


async def take(pool: WorkerPool[Any], starter: Starter, key: WorkerKey) -> Worker:
    worker = await pool.take(key, starter.of(key))
    worker.calls += 1
    return worker


async def test_an_idle_worker_is_reused(starter: Starter) -> None:
    pool = pool_of()
    first = await take(pool, starter, A)
    pool.give_back(first)
    assert await take(pool, starter, A) is first
    assert starter.started[A] == 1
    await pool.close()


@pytest.mark.parametrize(
    "other", [B, A2, WorkerKey(A.digest, A.tenant, "other"), WorkerKey(A.digest, "tenant-x", A.sandbox)]
)
async def test_a_worker_is_not_shared_between_keys(starter: Starter, other: WorkerKey) -> None:
    pool = pool_of()
    first = await take(pool, starter, A)
    pool.give_back(first)
    assert await take(pool, starter, other) is not first
    await pool.close()


async def test_the_longest_idle_worker_is_evicted(starter: Starter) -> None:
    pool = pool_of(max_workers=2)
    oldest, newest = await take(pool, starter, A), await take(pool, starter, B)
    pool.give_back(oldest)
    pool.give_back(newest)
    await take(pool, starter, C)
    assert oldest.ended.done()
    assert not newest.ended.done()
    assert len(pool) == starter.living == 2
    await pool.close()


async def test_a_tenant_at_its_limit_evicts_its_own_worker(starter: Starter) -> None:
    pool = pool_of(max_workers=10, max_per_tenant=1)
    mine, other = await take(pool, starter, A), await take(pool, starter, B)
    pool.give_back(other)
    pool.give_back(mine)
    await take(pool, starter, A2)
    assert mine.ended.done()
    assert not other.ended.done()
    await pool.close()


async def test_a_call_waits_when_the_pool_is_full(starter: Starter) -> None:
    pool = pool_of(max_workers=1)
    first = await take(pool, starter, A)
    waiting = [asyncio.create_task(take(pool, starter, key)) for key in (B, A)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    pool.give_back(first)
    second = await waiting[0]
    assert starter.keys[second] == B
    await pool.discard(second)
    assert starter.keys[await waiting[1]] == A
    await pool.close()


async def test_a_waiter_that_cannot_be_served_does_not_block_others(starter: Starter) -> None:
    pool = pool_of(max_workers=2, max_per_tenant=1)
    held = await take(pool, starter, A)
    stuck = asyncio.create_task(take(pool, starter, A2))
    await asyncio.sleep(0)
    assert starter.keys[await take(pool, starter, B)] == B
    assert not stuck.done()
    await pool.discard(held)
    assert starter.keys[await stuck] == A2
    await pool.close()


async def test_a_canceled_waiter_releases_its_grant(starter: Starter) -> None:
    pool = pool_of(max_workers=1)
    first = await take(pool, starter, A)
    waiting = [asyncio.create_task(take(pool, starter, A)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    # Granted and canceled in the same moment: what was granted goes on to the next.
    pool.give_back(first)
    waiting[1].cancel()
    assert await waiting[2] is first
    await pool.close()


async def test_a_failed_start_releases_its_permit(starter: Starter) -> None:
    pool = pool_of(max_workers=1)
    starter.failure = RuntimeError()
    with pytest.raises(RuntimeError):
        await take(pool, starter, A)
    starter.failure = None
    await take(pool, starter, B)
    assert len(pool) == 1
    await pool.close()


async def give_up(*calls: asyncio.Task[Worker]) -> None:
    """Let callers leave while their workers start."""
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


async def test_a_start_continues_after_its_caller_left(starter: Starter) -> None:
    """Otherwise a start that takes longer than a call would never end."""
    pool, starter.gate = pool_of(), asyncio.Event()
    for _ in range(3):
        call = asyncio.create_task(take(pool, starter, A))
        await until(lambda: pool.starting == 1)
        await give_up(call)
    starter.gate.set()
    await until(lambda: pool.idle == 1)
    assert starter.keys[await take(pool, starter, A)] == A
    assert starter.started[A] == 1
    await pool.close()


async def test_starts_without_callers_are_bounded(starter: Starter) -> None:
    keys = [WorkerKey(f"digest-{number}", "tenant-a", "s") for number in range(6)]
    pool, starter.gate = pool_of(max_starting_per_key=2, max_starting_per_tenant=3), asyncio.Event()
    same = [asyncio.create_task(take(pool, starter, A)) for _ in range(8)]
    await until(lambda: pool.starting == 2)
    await give_up(*same)
    other = [asyncio.create_task(take(pool, starter, key)) for key in (*keys, B)]
    await until(lambda: pool.starting == 4)
    await give_up(*other)
    assert Counter(key.tenant for key in pool._starts.values()) == {"tenant-a": 3, "tenant-b": 1}
    await pool.close()
    assert len(pool) == starter.living == 0


async def test_a_start_ends_after_its_own_time(starter: Starter) -> None:
    pool, starter.gate = pool_of(max_workers=1, start_seconds=0.02), asyncio.Event()
    with pytest.raises(MeshError) as caught:
        await take(pool, starter, A)
    assert (caught.value.reason, caught.value.retry_after) == (Reason.SANDBOX_NOT_READY, 1.0)
    await give_up(asyncio.create_task(take(pool, starter, A)))
    await until(lambda: len(pool) == 0)
    starter.gate.set()
    await take(pool, starter, B)
    await pool.close()


async def test_the_next_call_gets_the_failure_of_a_start_whose_caller_left(starter: Starter) -> None:
    pool, starter.gate, starter.failure = pool_of(), asyncio.Event(), RuntimeError()
    call = asyncio.create_task(take(pool, starter, A))
    await until(lambda: pool.starting == 1)
    await give_up(call)
    starter.gate.set()
    await until(lambda: pool.starting == 0)
    starter.failure = None
    assert starter.keys[await take(pool, starter, B)] == B
    with pytest.raises(RuntimeError):
        await take(pool, starter, A)
    assert starter.keys[await take(pool, starter, A)] == A
    await pool.close()


@pytest.mark.parametrize("unused_seconds", [0.05, 3600.0])
async def test_an_unused_worker_is_kept_for_its_caller_for_a_while(starter: Starter, unused_seconds: float) -> None:
    """Otherwise two slow starts would evict each other for ever."""
    pool, starter.gate = pool_of(max_workers=1, unused_seconds=unused_seconds), asyncio.Event()
    call = asyncio.create_task(take(pool, starter, A))
    await until(lambda: pool.starting == 1)
    await give_up(call)
    starter.gate.set()
    await until(lambda: pool.idle == 1)
    other = asyncio.create_task(take(pool, starter, B))
    if unused_seconds > 60:
        pool.give_back(await take(pool, starter, A))
        assert starter.started[A] == 1
    assert starter.keys[await other] == B
    await pool.close()


async def test_an_idle_worker_that_ends_releases_its_permit(starter: Starter) -> None:
    pool = pool_of(max_workers=1)
    first = await take(pool, starter, A)
    pool.give_back(first)
    await first._process.kill()
    await until(lambda: len(pool) == 0)
    assert await take(pool, starter, A) is not first
    await pool.close()


async def test_workers_end_after_their_calls_and_idle_time(starter: Starter) -> None:
    pool = pool_of(max_calls=2, idle_seconds=0.02)
    worker = await take(pool, starter, A)
    pool.give_back(worker)
    assert await take(pool, starter, A) is worker
    pool.give_back(worker)
    await until(worker.ended.done)
    idle = await take(pool, starter, B)
    pool.give_back(idle)
    await until(lambda: len(pool) == 0)
    assert idle.ended.done()
    await pool.close()


async def test_close_ends_all_workers_and_fails_the_waiters(starter: Starter) -> None:
    pool = pool_of(max_workers=2)
    busy, idle = await take(pool, starter, A), await take(pool, starter, B)
    pool.give_back(idle)
    pool.give_back(await take(pool, starter, B))
    held = await take(pool, starter, B)
    waiting = asyncio.create_task(take(pool, starter, C))
    await asyncio.sleep(0)
    await pool.close()
    assert busy.ended.done()
    assert held.ended.done()
    with pytest.raises(MeshError):
        await waiting
    with pytest.raises(MeshError):
        await take(pool, starter, A)
    assert starter.living == 0


STEPS = st.lists(st.tuples(st.sampled_from([A, A2, B, C]), st.integers(0, 3), st.sampled_from("kgdx")), max_size=40)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, most=st.integers(1, 3), per_tenant=st.integers(1, 3))
def test_limits_hold_and_every_call_is_served(steps: Any, most: int, per_tenant: int) -> None:
    """Calls of every kind, some canceled, some whose worker dies: never too many, never the wrong one, never one left
    waiting.
    """

    async def scenario() -> None:
        pool, starter = pool_of(max_workers=most, max_per_tenant=per_tenant, unused_seconds=0.0), Starter()
        using: set[Worker] = set()

        async def call(key: WorkerKey, pauses: int, end: str) -> None:
            worker = await take(pool, starter, key)
            assert starter.keys[worker] == key
            assert worker not in using
            using.add(worker)
            try:
                for _ in range(pauses):
                    await asyncio.sleep(0)
                    assert len(pool) <= most
                    assert all(count <= per_tenant for count in pool._tenants.values())
            except asyncio.CancelledError:
                using.discard(worker)
                await pool.discard(worker)
                raise
            using.discard(worker)
            if end == "g":
                pool.give_back(worker)
            elif end == "k":
                await worker._process.kill()
                pool.give_back(worker)
            else:
                await pool.discard(worker)

        tasks = []
        for key, pauses, end in steps:
            task = asyncio.create_task(call(key, pauses, end))
            tasks.append(task)
            await asyncio.sleep(0)
            if end == "x":
                task.cancel()
        async with asyncio.timeout(60):
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(outcome is None or isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
        await pool.close()
        assert starter.living == 0
        assert len(pool) == 0

    asyncio.run(scenario())


OLD, NEW = (WorkerKey(A.digest, A.tenant, A.sandbox, code=code) for code in ("sha256:old", "sha256:new"))


async def test_workers_of_replaced_code_end_after_their_calls(starter: Starter) -> None:
    pool = pool_of()
    idle, busy = await take(pool, starter, OLD), await take(pool, starter, OLD)
    pool.give_back(idle)
    pool.retire_except({"sha256:new"})
    await until(lambda: idle.ended.done())
    assert not busy.ended.done()
    pool.give_back(busy)
    await until(lambda: busy.ended.done())
    fresh = await take(pool, starter, NEW)
    pool.give_back(fresh)
    assert pool.idle == 1
    await pool.close()


async def test_a_call_that_waits_for_replaced_code_gets_it(starter: Starter) -> None:
    pool = pool_of(max_workers=1)
    first = await take(pool, starter, OLD)
    waiting = asyncio.create_task(take(pool, starter, OLD))
    await asyncio.sleep(0)
    pool.retire_except({"sha256:new"})
    pool.give_back(first)
    assert await waiting is first
    # One that was decided about before the change, and comes after it, gets a worker too.
    pool.give_back(first)
    late = await take(pool, starter, OLD)
    assert late is not first
    pool.give_back(late)
    await until(lambda: not len(pool))
    assert starter.living == 0
    await pool.close()


async def test_code_that_comes_back_keeps_its_workers(starter: Starter) -> None:
    pool = pool_of()
    worker = await take(pool, starter, OLD)
    pool.retire_except({"sha256:new"})
    pool.retire_except({"sha256:old"})
    pool.give_back(worker)
    assert await take(pool, starter, OLD) is worker
    await pool.close()
