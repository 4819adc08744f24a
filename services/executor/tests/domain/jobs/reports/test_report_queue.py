"""Reports of a run: quick progress is merged, everything is bounded, and a batch stays until it is stored."""

from __future__ import annotations

import asyncio

from libs.common.redaction.scanner import Scanner
from libs.common.testing.clock import ManualClock
from services.executor.domain.checkpoints.checkpoint import Checkpoint, CheckpointKind
from services.executor.domain.jobs.event import CheckpointMade, LogEntry, PartialContent, ProgressMade
from services.executor.domain.jobs.job import ClaimedJob
from services.executor.domain.jobs.reports.report_queue import OMITTED_LINE, OMITTED_PART, ReportBounds, ReportQueue
from services.executor.domain.run_channel import ProgressReport
from services.executor.tests.samples import a_request

JOB = ClaimedJob("i-1", 1, a_request(), "", 600.0, cancel_requested=False)


def a_queue(clock: ManualClock, bounds: ReportBounds | None = None) -> ReportQueue:
    return ReportQueue(JOB, Scanner, clock, lambda queue: None, bounds or ReportBounds())


def step(number: int) -> ProgressReport:
    return ProgressReport(current_step=number)


def steps(queue: ReportQueue) -> list[int]:
    batch = queue.next_batch()
    assert batch is not None
    queue.stored()
    return [report.report.current_step for report in batch.reports if isinstance(report, ProgressMade)]


def test_each_of_a_few_quick_reports_of_progress_is_stored() -> None:
    queue = a_queue(ManualClock())
    for number in (1, 2, 3):
        queue.progress(step(number))
    assert steps(queue) == [1, 2, 3]
    assert queue.seconds_until_due is None


def test_progress_is_merged_behind_the_burst_and_the_newest_wins() -> None:
    clock = ManualClock()
    queue = a_queue(clock, ReportBounds(progress_burst=2))
    for number in (1, 2, 3, 4):
        queue.progress(step(number))
    assert steps(queue) == [1, 2]
    assert queue.next_batch() is None
    assert 0 < (queue.seconds_until_due or 0) <= 0.2
    queue.progress(step(5))
    clock.advance(0.2)
    assert steps(queue) == [5]
    assert queue.seconds_until_due is None
    # A quiet while fills the burst again, and no more than that.
    clock.advance(60)
    for number in (6, 7, 8):
        queue.progress(step(number))
    assert steps(queue) == [6, 7]


def test_progress_that_waits_for_a_slow_store_is_bounded() -> None:
    clock = ManualClock()
    queue = a_queue(clock, ReportBounds(progress_burst=3))
    for number in range(100):
        queue.progress(step(number))
        clock.advance(1)
    assert steps(queue) == [0, 1, 2, 99]


def test_progress_slows_down_after_many_reports() -> None:
    clock = ManualClock()
    queue = a_queue(clock, ReportBounds(frequent_progress=2, progress_burst=1))
    for number in (1, 2):
        queue.progress(step(number))
        clock.advance(0.2)
        assert steps(queue) == [number]
    queue.progress(step(3))
    clock.advance(0.2)
    assert queue.next_batch() is None
    clock.advance(5.0)
    assert steps(queue) == [3]


async def test_a_flush_stores_the_last_progress_at_once() -> None:
    queue = a_queue(ManualClock(), ReportBounds(progress_burst=1))
    queue.progress(step(1))
    assert steps(queue) == [1]
    queue.progress(step(2))
    flushing = asyncio.ensure_future(queue.flush())
    await asyncio.sleep(0)
    assert queue.seconds_until_due == 0.0
    assert steps(queue) == [2]
    await flushing


async def test_a_batch_stays_the_same_until_it_is_stored_and_numbers_go_on() -> None:
    queue = a_queue(ManualClock())
    queue.log("info", "a")
    first = queue.next_batch()
    queue.log("info", "b")
    assert queue.next_batch() is first
    assert first is not None
    assert (first.first, len(first.reports)) == (1, 1)
    queue.stored()
    second = queue.next_batch()
    assert second is not None
    assert (second.first, second.reports) == (2, (LogEntry("info", "b"),))
    flushing = asyncio.ensure_future(queue.flush())
    await asyncio.sleep(0)
    queue.close()
    await flushing
    queue.log("info", "c")
    assert queue.next_batch() is None


def test_lines_and_parts_are_bounded_with_a_remark_and_checkpoints_are_not() -> None:
    clock = ManualClock()
    queue = a_queue(clock, ReportBounds(reports=2, part_bytes=10, line_characters=3))
    queue.part(b"x" * 11)
    queue.log("info", "abcdef")
    for _ in range(5):
        queue.log("info", "more")
    checkpoint = Checkpoint("i", 1, 1, CheckpointKind.MACRO, "", 1, 1, "", clock.now())
    made = CheckpointMade(checkpoint)
    queue.put(made)
    batch = queue.next_batch()
    assert batch is not None
    assert batch.reports == (
        LogEntry("warning", OMITTED_PART[:3]),
        LogEntry("info", "abc"),
        LogEntry("warning", OMITTED_LINE),
        made,
    )


def test_what_waits_for_a_slow_store_is_bounded() -> None:
    queue = a_queue(ManualClock(), ReportBounds(queued_bytes=1000))
    for _ in range(100):
        queue.part(b"x" * 200)
    batch = queue.next_batch()
    assert batch is not None
    assert len([report for report in batch.reports if isinstance(report, PartialContent)]) == 3
    # There is room again once it was taken.
    queue.part(b"y")
    queue.stored()
    again = queue.next_batch()
    assert again is not None
    assert again.reports == (PartialContent(b"y"),)


def test_numbers_of_progress_are_bounded() -> None:
    queue = a_queue(ManualClock())
    queue.progress(ProgressReport("m" * 10_000, percent=1e20, current_step=2**70, remaining_seconds=float("inf")))
    batch = queue.next_batch()
    assert batch is not None
    [made] = batch.reports
    assert isinstance(made, ProgressMade)
    assert made.report == ProgressReport("m" * 8_192, percent=100.0, current_step=2**53)
