"""Stores the reports of all runs of this process, in as few statements as possible."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from libs.common.redaction.scanner import Scanner
from libs.common.runtime.backoff import Backoff
from libs.common.runtime.clock import Clock
from services.executor.domain.jobs.event import LogEntry, Report, ReportBatch
from services.executor.domain.jobs.job import ClaimedJob
from services.executor.domain.jobs.ports import JobReports, JobSignals
from services.executor.domain.jobs.reports.redact import redact
from services.executor.domain.jobs.reports.report_queue import ReportQueue
from services.executor.domain.ports import Observer

# Reports of different runs wait this long for each other, and share a statement.
GROUP_SECONDS = 0.02
# A statement has at most so many batches.
GROUP_BATCHES = 200
_INLINE_BYTES = 16 << 10
_FIRST_RETRY, _LAST_RETRY = 0.1, 2.0
_UNREDACTED = LogEntry("warning", "A report is left out: it could not be redacted.")


class ReportWriter:
    """Writes what is queued, again and again until the store has it."""

    def __init__(self, store: JobReports, readers: JobSignals, observer: Observer, clock: Clock) -> None:
        """`readers` wakes those that follow jobs."""
        self._store, self._readers, self._observer, self._clock = store, readers, observer, clock
        self._waiting: dict[ReportQueue, None] = {}
        self._reported = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start to write."""
        self._task = asyncio.create_task(self._write_forever(), name="job-reports")

    async def stop(self) -> None:
        """Stop to write. Runs have been flushed or given up by now."""
        for queue in list(self._waiting):
            queue.close()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def open(self, job: ClaimedJob, scanner: Callable[[], Scanner]) -> ReportQueue:
        """Return the queue of a new run."""
        return ReportQueue(job, scanner, self._clock, self._note)

    def _note(self, queue: ReportQueue) -> None:
        self._waiting[queue] = None
        self._reported.set()

    async def _write_forever(self) -> None:
        backoff = Backoff(_FIRST_RETRY, _LAST_RETRY)
        while True:
            await self._next_report()
            await asyncio.sleep(GROUP_SECONDS)
            try:
                await self._write()
                backoff.reset()
            except Exception as cause:
                # The store does not answer. The same batches are written again; the store counts them once.
                self._observer.unexpected(cause)
                await backoff.wait()

    async def _next_report(self) -> None:
        """Wait until something is due."""
        self._reported.clear()
        due = [seconds for queue in self._waiting if (seconds := queue.seconds_until_due) is not None]
        first = min(due, default=None)
        if first == 0.0:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(first):
                await self._reported.wait()

    async def _write(self) -> None:
        queues = [queue for queue in self._waiting if queue.seconds_until_due == 0.0][:GROUP_BATCHES]
        batches = [(queue, batch) for queue in queues if (batch := queue.next_batch()) is not None]
        if batches:
            held = await self._store.append([await _redacted(queue, batch, self._observer) for queue, batch in batches])
            for queue, batch in batches:
                if batch.invocation_id in held:
                    queue.stored()
                else:
                    # Another replica has the job by now.
                    queue.close()
            self._readers.wake()
        for queue in [queue for queue in self._waiting if queue.seconds_until_due is None]:
            del self._waiting[queue]


async def _redacted(queue: ReportQueue, batch: ReportBatch, observer: Observer) -> ReportBatch:
    scanner = queue.scanner()
    size = sum(len(getattr(report, "content", b"")) + len(getattr(report, "text", "")) for report in batch.reports)
    reports: tuple[Report, ...]
    try:
        # A large batch is scanned in a thread: the event loop serves calls.
        inline = size < _INLINE_BYTES
        reports = redact(batch.reports, scanner) if inline else await asyncio.to_thread(redact, batch.reports, scanner)
    except Exception as cause:
        observer.unexpected(cause, scanner)
        reports = (_UNREDACTED,) * len(batch.reports)
    return ReportBatch(batch.invocation_id, batch.attempt, batch.first, reports)
