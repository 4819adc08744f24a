"""Jobs in PostgreSQL, as two replicas claim them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.errors import MeshError, Reason
from libs.common.ids import new_id
from libs.common.sealing import Seal
from services.executor.adapters.jobs.job_rows import JobRows
from services.executor.adapters.jobs.job_store import PostgresJobs
from services.executor.adapters.jobs.report_rows import ReportRows
from services.executor.adapters.jobs.report_store import PostgresReports
from services.executor.domain.jobs.job import ClaimedJob, JobBounds, JobFilter, JobOwner, NewJob, Renewal
from services.executor.domain.model import Result
from services.executor.domain.states import State
from services.executor.tests.keys import KEY
from services.executor.tests.samples import a_caller, a_request, a_result

Engines = tuple[AsyncEngine, AsyncEngine]
OWNER = JobOwner.of(a_caller())


def a_job(*, tenant: str = "", key: str = "", **changes: Any) -> NewJob:
    caller = a_caller(tenant=tenant) if tenant else a_caller()
    fields: dict[str, Any] = {
        "invocation_id": new_id(),
        "request": a_request(caller=caller, idempotency_key=key),
        "token": "the token",
        "tool": "core.say",
        "tool_version": "tools/core.say/versions/1.0.0",
        "tool_digest": "sha256:" + "0" * 64,
        "arguments_digest": "sha256:a",
        "priority": 5,
        "max_seconds": 600.0,
        "transitions": (State.PLANNED, State.SELECTED, State.QUEUED),
        **changes,
    }
    return NewJob(**fields)


def a_store(engine: AsyncEngine, owner: str, **bounds: int) -> PostgresJobs:
    rows = JobRows(engine, owner=owner, executor_id=owner, lease=10.0, keep=3600.0)
    return PostgresJobs(rows, Seal([KEY]), JobBounds(**bounds))


@pytest.fixture
def here(engines: Engines) -> PostgresJobs:
    return a_store(engines[0], "executor-0")


@pytest.fixture
def there(engines: Engines) -> PostgresJobs:
    return a_store(engines[1], "executor-1")


async def execute(engine: AsyncEngine, statement: str) -> None:
    async with engine.begin() as connection:
        await connection.execute(text(statement))


async def claimed_ids(store: PostgresJobs, limit: int = 100) -> list[str]:
    return [job.invocation_id for job in await store.claim(limit)]


async def states(engine: AsyncEngine, job: NewJob | ClaimedJob) -> list[tuple[int, State]]:
    reports = PostgresReports(ReportRows(engine, owner=""), Seal([KEY]))
    return [(event.sequence, event.state) for event in await reports.events(job.invocation_id, 0, 100)]


async def test_a_job_is_claimed_once_runs_and_keeps_its_outcome(
    engines: Engines, here: PostgresJobs, there: PostgresJobs
) -> None:
    new = a_job()
    added = await here.add(new)
    assert (added.invocation_id, added.state, added.ended) == (new.invocation_id, State.QUEUED, False)
    claims: Sequence[Sequence[ClaimedJob]] = await asyncio.gather(*(store.claim(5) for store in (here, there) * 5))
    [job] = [job for claim in claims for job in claim]
    assert (job.token, job.attempt, job.request.tool) == ("the token", 1, new.request.tool)
    holder = here if await here.begin(job) else there
    assert await there.begin(job) is False
    assert await holder.finish(job, State.SUCCEEDED, a_result())
    ended = await there.get(OWNER, new.invocation_id)
    assert ended is not None
    assert isinstance(ended.outcome, Result)
    assert ended.outcome.content == a_result().content
    sequence = await states(engines[0], new)
    assert [number for number, _ in sequence] == list(range(1, len(sequence) + 1))
    assert [state for _, state in sequence][-2:] == [State.RUNNING, State.SUCCEEDED]
    assert not await claimed_ids(here)


async def test_a_job_whose_replica_disappeared_is_taken_over_and_the_former_owner_changes_nothing(
    engines: Engines, here: PostgresJobs, there: PostgresJobs
) -> None:
    await here.add(a_job())
    [lost] = await here.claim(1)
    await here.begin(lost)
    assert not await claimed_ids(there)
    await execute(engines[0], "update jobs set lease_until = now() - interval '1 second'")
    [taken] = await there.claim(1)
    assert taken.attempt == 2
    assert not await here.finish(lost, State.SUCCEEDED, a_result())
    assert await here.renew([lost]) == {}
    assert await there.begin(taken)
    assert await there.finish(taken, State.SUCCEEDED, a_result())
    entered = [state for _, state in await states(engines[0], taken)]
    assert entered[3:] == [State.RUNNING, State.YIELDED, State.RUNNING, State.SUCCEEDED]


async def test_the_most_urgent_comes_first_and_waiting_makes_urgent(engines: Engines, here: PostgresJobs) -> None:
    low, old, high = a_job(priority=1), a_job(priority=1), a_job(priority=9)
    for job in (low, old, high):
        await here.add(job)
    await execute(
        engines[0],
        f"update jobs set create_time = now() - interval '1 hour' where invocation_id = '{old.invocation_id}'",  # noqa: S608
    )
    assert await claimed_ids(here, 1) == [old.invocation_id]
    assert await claimed_ids(here, 1) == [high.invocation_id]
    assert await claimed_ids(here, 1) == [low.invocation_id]


async def test_of_jobs_that_wait_equally_long_the_higher_one_stays_first(engines: Engines, here: PostgresJobs) -> None:
    waiting = [a_job(priority=priority) for priority in (1, 5, 9)]
    for job in waiting:
        await here.add(job)
    await execute(engines[0], "update jobs set create_time = now() - interval '1 day'")
    for job in reversed(waiting):
        assert await claimed_ids(here, 1) == [job.invocation_id]


async def test_tenants_take_turns_and_no_tenant_or_tool_has_more_than_its_share(engines: Engines) -> None:
    store = a_store(engines[0], "executor-0", per_tenant=3, per_tool=4)
    many = [a_job(tenant="acme", tool="core.a") for _ in range(6)]
    few = [a_job(tenant="globex", tool="core.a") for _ in range(2)]
    for job in (*many, *few):
        await store.add(job)
    tenants = [job.request.caller.tenant for job in await store.claim(4)]
    assert sorted(tenants) == ["acme", "acme", "globex", "globex"]
    # The tool has its four.
    assert not await claimed_ids(store)


async def test_a_key_has_one_job_and_other_arguments_are_a_conflict(here: PostgresJobs, there: PostgresJobs) -> None:
    jobs = [a_job(key="k") for _ in range(8)]
    added = await asyncio.gather(*((here, there)[n % 2].add(job) for n, job in enumerate(jobs)))
    assert len({job.invocation_id for job in added}) == 1
    with pytest.raises(MeshError) as refused:
        await here.add(a_job(key="k", arguments_digest="sha256:b"))
    assert refused.value.reason is Reason.IDEMPOTENCY_CONFLICT
    assert len(await claimed_ids(here)) == 1


async def test_a_full_queue_refuses_the_tenant_that_filled_it(engines: Engines) -> None:
    store = a_store(engines[0], "executor-0", waiting=3, waiting_per_tenant=2)
    await store.add(a_job(tenant="acme"))
    await store.add(a_job(tenant="acme"))
    with pytest.raises(MeshError) as refused:
        await store.add(a_job(tenant="acme"))
    assert refused.value.reason is Reason.QUEUE_FULL
    await store.add(a_job(tenant="globex"))
    with pytest.raises(MeshError) as refused:
        await store.add(a_job(tenant="globex"))
    assert refused.value.reason is Reason.QUEUE_FULL


async def test_a_cancellation_is_seen_at_renewal_and_by_the_next_claim(here: PostgresJobs, there: PostgresJobs) -> None:
    running, waiting = a_job(), a_job(priority=1)
    await here.add(running)
    [claimed] = await here.claim(1)
    await here.add(waiting)
    for job in (running, waiting):
        assert await there.request_cancel(OWNER, job.invocation_id) is not None
    assert await here.renew([claimed]) == {running.invocation_id: Renewal(cancel_requested=True)}
    [found] = await there.claim(1)
    assert found.cancel_requested


async def test_others_see_nothing_of_a_job(here: PostgresJobs) -> None:
    job = a_job(tenant="acme")
    await here.add(job)
    others = [JobOwner("globex", job.request.caller.subject), JobOwner("acme", "did:web:mallory")]
    for other in others:
        assert await here.get(other, job.invocation_id) is None
        assert await here.request_cancel(other, job.invocation_id) is None
        assert not (await here.page(JobFilter(other), 10, None)).jobs
    [claimed] = await here.claim(1)
    assert not claimed.cancel_requested


async def test_pages_are_complete_and_newest_first(here: PostgresJobs) -> None:
    jobs = [a_job() for _ in range(5)]
    for job in jobs:
        await here.add(job)
    seen: list[str] = []
    page = await here.page(JobFilter(OWNER, states=(State.QUEUED,), tool="core.say"), 2, None)
    seen += [job.invocation_id for job in page.jobs]
    while page.next_cursor is not None:
        page = await here.page(JobFilter(OWNER), 2, page.next_cursor)
        seen += [job.invocation_id for job in page.jobs]
    assert seen == [job.invocation_id for job in reversed(jobs)]
    assert not (await here.page(JobFilter(OWNER, states=(State.RUNNING,)), 2, None)).jobs


async def test_what_is_stored_of_a_caller_is_sealed_and_goes_with_the_end(engines: Engines, here: PostgresJobs) -> None:
    job = a_job()
    await here.add(job)
    async with engines[0].connect() as connection:
        row = (await connection.execute(text("select * from jobs"))).one()
    assert b"the token" not in bytes(row.request)
    assert job.request.arguments not in bytes(row.request)
    [claimed] = await here.claim(1)
    await here.finish(claimed, State.SUCCEEDED, a_result())
    async with engines[0].connect() as connection:
        row = (await connection.execute(text("select * from jobs"))).one()
    assert row.request is None
    await execute(engines[0], "update jobs set expire_time = now() - interval '1 second'")
    assert await here.sweep() == 1
    assert await here.get(OWNER, job.invocation_id) is None


async def test_a_job_that_no_key_opens_ends(engines: Engines, here: PostgresJobs) -> None:
    job = a_job()
    await here.add(job)
    await execute(engines[0], "update jobs set request = '\\x00'::bytea")
    assert not await claimed_ids(here)
    ended = await here.get(OWNER, job.invocation_id)
    assert ended is not None
    assert ended.state is State.FAILED
    assert isinstance(ended.outcome, MeshError)
