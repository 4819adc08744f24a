"""What runs report, in PostgreSQL: events without gaps, questions and answers, and attached streams."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sealing import Seal
from services.executor.adapters.jobs.job_store import PostgresJobs
from services.executor.adapters.jobs.report_rows import ReportRows
from services.executor.adapters.jobs.report_store import PostgresReports
from services.executor.domain.jobs.event import InputAsked, LogEntry, PartialContent, ReportBatch
from services.executor.domain.jobs.job import ClaimedJob, JobOwner, PendingQuestion, Renewal
from services.executor.domain.states import State
from services.executor.tests.adapters.jobs.test_job_store import OWNER, a_job, a_store, execute
from services.executor.tests.keys import KEY
from services.executor.tests.samples import a_result

Engines = tuple[AsyncEngine, AsyncEngine]


@pytest.fixture
def here(engines: Engines) -> PostgresJobs:
    return a_store(engines[0], "executor-0")


@pytest.fixture
def reports(engines: Engines) -> PostgresReports:
    return PostgresReports(ReportRows(engines[0], owner="executor-0"), Seal([KEY]))


async def running(store: PostgresJobs) -> ClaimedJob:
    await store.add(a_job())
    [job] = await store.claim(1)
    assert await store.begin(job)
    return job


def a_batch(job: ClaimedJob, first: int, *lines: str) -> ReportBatch:
    return ReportBatch(job.invocation_id, job.attempt, first, tuple(LogEntry("info", line) for line in lines))


async def test_batches_of_many_jobs_are_stored_once_in_order_and_sealed(
    engines: Engines, here: PostgresJobs, reports: PostgresReports
) -> None:
    one, two = await running(here), await running(here)
    first = [a_batch(one, 1, "a", "b"), a_batch(two, 1, "x")]
    ids = {one.invocation_id, two.invocation_id}
    assert await reports.append(first) == ids
    # A batch whose answer was lost is given again, also together with more.
    assert await reports.append(first) == ids
    assert await reports.append([a_batch(one, 1, "a", "b", "c")]) == {one.invocation_id}
    assert await here.finish(one, State.SUCCEEDED, a_result())
    events = await reports.events(one.invocation_id, 0, 100)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert [event.report for event in events[-4:-1]] == [LogEntry("info", line) for line in "abc"]
    assert (events[-1].state, events[-1].report) == (State.SUCCEEDED, None)
    async with engines[0].connect() as connection:
        rows = (await connection.execute(text("select report from job_events where kind = 'log_message'"))).all()
    assert len(rows) == 4
    assert all(b"info" not in bytes(row.report) for row in rows)
    found = await reports.events_of({one.invocation_id: events[-2].sequence, two.invocation_id: 0}, 3)
    assert {job: [event.sequence for event in page] for job, page in found.items()} == {
        one.invocation_id: [events[-1].sequence],
        two.invocation_id: [1, 2, 3],
    }
    assert await reports.progress([one.invocation_id, "none"]) == {one.invocation_id: (len(events), True)}


async def test_a_page_of_events_is_bounded_by_its_size(here: PostgresJobs, reports: PostgresReports) -> None:
    job = await running(here)
    parts = tuple(PartialContent(b"x" * (700 << 10)) for _ in range(3))
    await reports.append([ReportBatch(job.invocation_id, job.attempt, 1, parts)])
    assert [len(await reports.events(job.invocation_id, after, 100)) for after in (4, 5, 6)] == [1, 1, 1]


async def test_a_replica_that_lost_its_claim_stores_nothing(
    engines: Engines, here: PostgresJobs, reports: PostgresReports
) -> None:
    job = await running(here)
    await execute(engines[0], "update jobs set lease_until = now() - interval '1 second'")
    [taken] = await a_store(engines[1], "executor-1").claim(1)
    assert taken.taken_over
    assert await reports.append([a_batch(job, 1, "late")]) == set()
    assert await reports.ask(job, InputAsked("q", "", b""), b"") is None
    # Given back before its tool ran, it is claimed again, and not taken over again.
    there = a_store(engines[1], "executor-1")
    await there.give_back(taken)
    [again] = await there.claim(1)
    assert (again.attempt, again.taken_over, again.losses) == (3, False, 1)
    others = PostgresReports(ReportRows(engines[1], owner="executor-1"), Seal([KEY]))
    assert await others.append([a_batch(again, 1, "now")])


async def test_a_renewal_and_reports_of_the_same_jobs_never_block_each_other(
    here: PostgresJobs, reports: PostgresReports
) -> None:
    jobs = [await running(here) for _ in range(8)]
    for number in range(1, 20):
        batches = [a_batch(job, number, "a") for job in jobs]
        held, renewed = await asyncio.gather(reports.append(batches[::-1]), here.renew(jobs))
        assert (len(held), len(renewed)) == (8, 8)


async def test_a_question_is_answered_once_and_its_answer_survives_a_lost_connection(
    here: PostgresJobs, reports: PostgresReports
) -> None:
    job = await running(here)
    asked = InputAsked("q-1", "How many?", b"{}")
    for _ in range(2):
        assert await reports.ask(job, asked, b'{"type":"integer"}') == "q-1"
    assert await reports.question(OWNER, job.invocation_id) == PendingQuestion("q-1", b'{"type":"integer"}')
    assert await reports.question(JobOwner("other", OWNER.subject), job.invocation_id) is None
    assert await reports.take_answer(job, "q-1") is None
    assert not await reports.answer(OWNER, job.invocation_id, "q-2", b"1")
    assert await reports.answer(OWNER, job.invocation_id, "q-1", b"1")
    assert not await reports.answer(OWNER, job.invocation_id, "q-1", b"2")
    wanted = {job.invocation_id: Renewal(cancel_requested=False, answered="q-1")}
    assert (await here.renew([job]), await here.requests([job])) == (wanted, wanted)
    for _ in range(2):
        assert await reports.take_answer(job, "q-1") == b"1"
    assert await reports.question(OWNER, job.invocation_id) == PendingQuestion("")
    assert (await here.requests([job]))[job.invocation_id] == Renewal(cancel_requested=False)
    events = await reports.events(job.invocation_id, 4, 100)
    assert [(event.sequence, event.state, event.report) for event in events] == [
        (5, State.NEEDS_INPUT, None),
        (6, State.NEEDS_INPUT, asked),
        (7, State.RUNNING, None),
    ]


async def test_a_taken_over_job_has_no_open_question(
    engines: Engines, here: PostgresJobs, reports: PostgresReports
) -> None:
    job = await running(here)
    await reports.ask(job, InputAsked("q-1", "", b""), b"")
    await execute(engines[0], "update jobs set lease_until = now() - interval '1 second'")
    [taken] = await here.claim(1)
    assert taken.taken_over
    assert await reports.question(OWNER, job.invocation_id) == PendingQuestion("")
    assert not await reports.answer(OWNER, job.invocation_id, "q-1", b"1")


async def test_a_job_is_cancelled_when_no_stream_renews_its_attachment(
    engines: Engines, here: PostgresJobs, reports: PostgresReports
) -> None:
    kept, left, plain = a_job(cancel_when_detached=True), a_job(cancel_when_detached=True), a_job()
    for job in (kept, left, plain):
        await here.add(job)
    assert await reports.cancel_detached() == 0
    await execute(engines[0], "update job_attachments set attached_until = now() - interval '1 second'")
    await reports.renew_attachments([kept.invocation_id, plain.invocation_id])
    assert await reports.cancel_detached() == 1
    requested = {job.invocation_id: job.cancel_requested for job in await here.claim(3)}
    assert requested == {kept.invocation_id: False, left.invocation_id: True, plain.invocation_id: False}
