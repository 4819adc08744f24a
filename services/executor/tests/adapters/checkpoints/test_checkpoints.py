"""Checkpoints of runs in a real PostgreSQL and a real Valkey: saved, restored, damaged, fenced and bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import msgspec
import orjson
import pytest
import redis.asyncio
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.errors import MeshError, Reason
from libs.common.ids import new_id
from libs.common.sealing import Seal
from libs.common.testing.clock import ManualClock
from services.executor.adapters.checkpoints.postgres_checkpoints import PostgresCheckpoints
from services.executor.adapters.checkpoints.valkey_checkpoints import ValkeyCheckpoints
from services.executor.domain.checkpoints.checkpoint import CheckpointBounds, CheckpointConfig, CheckpointKind
from services.executor.domain.checkpoints.ports import AddOutcome
from services.executor.domain.checkpoints.stored_checkpoints import StoredCheckpoints
from services.executor.domain.jobs.job import ClaimedJob
from services.executor.domain.jobs.worker.run_checkpoints import RunCheckpoints
from services.executor.domain.run_channel import CheckpointState
from services.executor.domain.scheduling.heavy_work import HeavyWork
from services.executor.domain.tool import Tool
from services.executor.tests.adapters.jobs.test_job_store import a_job, a_store
from services.executor.tests.keys import KEY
from services.executor.tests.samples import a_tool

Engines = tuple[AsyncEngine, AsyncEngine]
MICRO, MACRO, NAMED = CheckpointKind.MICRO, CheckpointKind.MACRO, CheckpointKind.NAMED


# No server listens there.
AWAY = "redis://127.0.0.1:1/0"


class Runs:
    """Makes jobs, and their runs in two processes."""

    def __init__(self, engines: Engines, url: str) -> None:
        self.engines, self.url = engines, url
        self.clock = ManualClock()
        # Valkey outlives the test, and counts the bytes of tenants.
        self.tenant = new_id()
        self.client = redis.asyncio.Redis.from_url(url)
        self.micro = ValkeyCheckpoints(url, Seal([KEY]), tenant_bytes=1 << 20)
        self.jobs = [a_store(engine, f"executor-{nth}") for nth, engine in enumerate(engines)]
        self.tool: Tool = replace(
            a_tool(), checkpoint=CheckpointConfig(interval=30.0, macro_events=frozenset({"phase"}))
        )

    async def claimed(self) -> ClaimedJob:
        """Return a new job that the first process holds."""
        await self.jobs[0].add(a_job(tenant=self.tenant))
        [job] = await self.jobs[0].claim(1)
        return job

    async def taken_over(self, process: int) -> ClaimedJob:
        """Let the other process die, and return the job that this one takes over."""
        await self.execute("update jobs set lease_until = now() - interval '1 second' where end_time is null")
        [job] = await self.jobs[process].claim(1)
        return job

    async def run(self, job: ClaimedJob, process: int = 0, **bounds: int) -> RunCheckpoints:
        """Return the checkpoints of a run, restored."""
        limits = CheckpointBounds(**bounds)
        durable = PostgresCheckpoints(self.engines[process], Seal([KEY]), limits, owner=f"executor-{process}")
        stored = StoredCheckpoints(self.micro, durable, HeavyWork())
        checkpoints = RunCheckpoints(job, stored, durable, limits, self.clock)
        await checkpoints.restore(self.tool)
        return checkpoints

    async def execute(self, statement: str) -> None:
        async with self.engines[0].begin() as connection:
            await connection.execute(text(statement))

    async def sealed(self, job: ClaimedJob, number: int) -> bytes:
        """Return the stored bytes of a checkpoint."""
        if (micro := await self.client.hget(_key(job), f"content:{number}")) is not None:
            assert isinstance(micro, bytes)
            return micro
        async with self.engines[0].connect() as connection:
            values = {"number": number, "id": job.invocation_id}
            found = await connection.execute(
                text("select content from checkpoints where number = :number and invocation_id = :id"), values
            )
            return bytes(found.scalar_one())

    async def overwrite(self, job: ClaimedJob, number: int, content: bytes) -> None:
        """Replace the stored bytes of a checkpoint."""
        if await self.client.hexists(_key(job), f"content:{number}"):
            await self.client.hset(_key(job), f"content:{number}", content)
            return
        async with self.engines[0].begin() as connection:
            values = {"number": number, "id": job.invocation_id, "content": content}
            await connection.execute(
                text("update checkpoints set content = :content where number = :number and invocation_id = :id"), values
            )


@pytest.fixture
async def runs(engines: Engines, valkey_url: str) -> AsyncIterator[Runs]:
    made = Runs(engines, valkey_url)
    yield made
    await made.micro.close()
    await made.client.aclose()


def state(step: int, **more: str) -> CheckpointState:
    done = [f"item-{n:04}" for n in range(step)]
    return CheckpointState(orjson.dumps({"step": step, "done": done}), **more)


def _key(job: ClaimedJob) -> str:
    return f"toolmesh:executor:checkpoints:{job.invocation_id}"


def step_of(checkpoints: RunCheckpoints) -> int | None:
    return None if checkpoints.resume_state is None else int(orjson.loads(checkpoints.resume_state)["step"])


async def refusal(checkpoints: RunCheckpoints, asked: CheckpointState) -> Reason:
    with pytest.raises(MeshError) as caught:
        await checkpoints.save(asked)
    return caught.value.reason


async def test_kinds_intervals_and_restoration_in_another_process(runs: Runs) -> None:
    job = await runs.claimed()
    first = await runs.run(job)
    assert step_of(first) is None
    saved = [await first.save(state(1)), await first.save(state(2)), await first.save(state(3, event="phase"))]
    assert [each and each.kind for each in saved] == [MICRO, None, MACRO]
    # An event that is not declared is none; the micro checkpoint before it is replaced.
    assert await first.save(state(4, event="other")) is None
    assert await first.save(state(5)) is None
    runs.clock.advance(31)
    late = await first.save(state(6))
    assert late is not None
    assert (late.kind, late.number) == (MICRO, 3)
    named = await first.save(state(7, label="before-review"))
    assert named is not None
    assert (named.kind, named.parent_number, named.expire_time) == (NAMED, 0, None)
    assert await refusal(first, state(8, label="no spaces")) is Reason.CHECKPOINT_FAILED
    second = await runs.run(await runs.taken_over(1), 1)
    assert step_of(second) == 7
    runs.clock.advance(31)
    assert await second.save(state(8)) is not None
    await second.save(state(9))
    await second.flush()
    third = await runs.run(await runs.taken_over(0))
    assert step_of(third) == 9
    # Nothing of it is readable in the stores.
    raw = await runs.client.hgetall(_key(job))
    assert raw
    assert not any(b"item-" in value for value in raw.values())


async def test_chains_are_full_every_ten_and_old_ones_are_dropped(runs: Runs) -> None:
    job = await runs.claimed()
    run = await runs.run(job, macros=30)
    saved = [await run.save(state(20 + n, event="phase")) for n in range(60)]
    parents = [each.parent_number for each in saved if each is not None]
    assert [number for number, parent in enumerate(parents) if not parent] == [0, 10, 20, 30, 40, 50]
    for _ in range(45):
        runs.clock.advance(31)
        await run.save(state(100))
    micro = await runs.micro.find(job.invocation_id)
    assert len(micro) <= 20
    stored = StoredCheckpoints(runs.micro, run._stored.durable, HeavyWork())
    found, _ = await stored.find(job.invocation_id)
    macros = [each for each in found if each.kind is MACRO]
    assert 20 <= len(macros) <= 30
    # Every checkpoint that is left can be restored.
    for each in found:
        assert await stored.load(job.request.caller, each, runs.tool.digest)
    assert step_of(await runs.run(await runs.taken_over(1), 1)) == 100


@pytest.mark.parametrize("damage", ["changed", "cut", "gone", "other_row"])
async def test_a_damaged_checkpoint_falls_back_to_the_one_before_it(runs: Runs, damage: str) -> None:
    job = await runs.claimed()
    run = await runs.run(job)
    await run.save(state(1, event="phase"))
    await run.save(state(2, label="safe"))
    await run.save(state(3, event="phase"))
    await run.save(state(4))
    runs.clock.advance(31)
    await run.save(state(5))
    contents = {number: await runs.sealed(job, number) for number in range(1, 6)}
    for number in range(5, 0, -1):
        content = contents[number]
        spoiled = {
            "changed": content[:-1] + bytes([content[-1] ^ 1]),
            "cut": content[:20],
            "gone": b"",
            "other_row": contents[number % 5 + 1],
        }
        await runs.overwrite(job, number, spoiled[damage])
        again = await runs.run(await runs.taken_over(1), 1)
        assert step_of(again) == (number - 1 or None)
        restored = await again.restore(runs.tool)
        assert restored.unusable == tuple(range(5, number - 1, -1))
        assert restored.source.startswith("beginning" if number == 1 else f"invocations/{job.invocation_id}/")


async def test_a_former_attempt_that_comes_back_late_writes_nothing(runs: Runs) -> None:
    job = await runs.claimed()
    late = await runs.run(job)
    await late.save(state(1, event="phase"))
    taken = await runs.run(await runs.taken_over(1), 1)
    for asked in (state(9), state(9, event="phase"), state(9, label="mine")):
        runs.clock.advance(31)
        assert await refusal(late, asked) is Reason.SERVICE_UNAVAILABLE
    runs.clock.advance(31)
    assert await taken.save(state(2)) is not None
    # Also where only the store of micro checkpoints answers.
    newest = (await runs.micro.find(job.invocation_id))[0]
    assert newest.attempt == 2
    assert await runs.micro.add("", msgspec.structs.replace(newest, attempt=1), b"x") is AddOutcome.NOT_HELD
    assert step_of(await runs.run(await runs.taken_over(0))) == 2


async def test_without_valkey_micro_checkpoints_are_left_out_and_macro_ones_are_written(runs: Runs) -> None:
    job = await runs.claimed()
    available, runs.micro = runs.micro, ValkeyCheckpoints(AWAY, Seal([KEY]), tenant_bytes=1 << 20)
    run = await runs.run(job)
    left_out: list[str] = []
    run.on_left_out = left_out.append
    assert await run.save(state(1)) is None
    assert len(left_out) == 1
    assert (await run.save(state(2, event="phase"))) is not None
    again = await runs.run(await runs.taken_over(1), 1)
    assert step_of(again) == 2
    assert not (await again.restore(runs.tool)).micro_available
    runs.micro = available


async def test_bounds_of_states_jobs_and_tenants(runs: Runs) -> None:
    job = await runs.claimed()
    run = await runs.run(job, state_bytes=4_000, named=2, tenant_bytes=3_000)
    assert await refusal(run, state(1_000)) is Reason.STATE_TOO_LARGE
    for label in ("a", "b", "a", "b"):
        assert await run.save(state(1, label=label)) is not None
    assert await refusal(run, state(1, label="c")) is Reason.CHECKPOINT_FAILED
    assert await refusal(run, state(250, event="phase")) is Reason.CHECKPOINT_FAILED
    other = await runs.run(await runs.claimed(), tenant_bytes=1 << 20)
    assert await other.save(state(250, event="phase")) is not None
    runs.micro = ValkeyCheckpoints(runs.url, Seal([KEY]), tenant_bytes=2_000)
    noisy = await runs.run(await runs.claimed())
    left_out: list[str] = []
    noisy.on_left_out = left_out.append
    assert await noisy.save(state(100)) is not None
    runs.clock.advance(31)
    assert await noisy.save(CheckpointState(orjson.dumps("x" * 5_000))) is None
    assert len(left_out) == 1
    # A tool whose manifest does not enable checkpoints saves none.
    plain = await runs.run(await runs.claimed())
    plain._config = None
    assert await refusal(plain, state(1)) is Reason.CHECKPOINT_FAILED


async def test_a_deleted_checkpoint_takes_its_differences_along_and_a_run_goes_on(runs: Runs) -> None:
    job = await runs.claimed()
    run = await runs.run(job)
    durable = run._stored.durable
    for number in range(5):
        await run.save(state(50 + number, event="phase"))
        runs.clock.advance(31)
        await run.save(state(50 + number))
    for store in (durable, runs.micro):
        found = await store.find(job.invocation_id)
        await store.delete(job.invocation_id, found[-2].number)
        assert [each.number for each in await store.find(job.invocation_id)] == [found[-1].number]
    saved = [await run.save(state(60, event="phase"))]
    runs.clock.advance(31)
    saved.append(await run.save(state(61)))
    assert [each is not None and each.parent_number for each in saved] == [0, 0]
    assert step_of(await runs.run(await runs.taken_over(1), 1)) == 61


async def test_a_waiting_micro_checkpoint_is_written_at_the_end_of_its_interval(runs: Runs) -> None:
    runs.tool = replace(runs.tool, checkpoint=CheckpointConfig(interval=0.05))
    run = await runs.run(await runs.claimed())
    written = asyncio.Event()
    run.on_saved = lambda checkpoint: written.set()
    await run.save(state(1))
    assert await run.save(state(2)) is None
    async with asyncio.timeout(60):
        await written.wait()
    assert step_of(await runs.run(await runs.taken_over(1), 1)) == 2
