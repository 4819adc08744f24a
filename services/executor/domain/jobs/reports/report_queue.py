"""Collects the reports of one run until they are stored. Progress is merged, and everything is bounded."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from math import isfinite

from msgspec import Struct

from libs.common.redaction.scanner import Scanner
from libs.common.runtime.clock import Clock
from services.executor.domain.jobs.event import (
    InputAsked,
    LogEntry,
    PartialContent,
    ProgressMade,
    Report,
    ReportBatch,
)
from services.executor.domain.jobs.job import ClaimedJob
from services.executor.domain.run_channel import ProgressReport


class ReportBounds(Struct, frozen=True):
    """How much of what one run reports is stored."""

    progress_seconds: float = 0.2
    """The time for each stored report of progress; of those that come sooner, the newest one is kept meanwhile."""
    progress_burst: int = 10
    """So many reports that follow each other at once are stored one by one, before any are merged: a short run shows
    every step. It is also the most that waits for the store."""
    frequent_progress: int = 1_000
    """So many reports of progress are stored at that pace; later ones at the slow one."""
    slow_progress_seconds: float = 5.0
    reports: int = 10_000
    """The most lines of log and parts of the result."""
    total_bytes: int = 16 << 20
    queued_bytes: int = 1 << 20
    """The most that waits for the store."""
    line_characters: int = 8_192
    part_bytes: int = 256 << 10


BOUNDS = ReportBounds()
BATCH_REPORTS = 200
BATCH_BYTES = 512 << 10
_REPORT_BYTES = 128
_MOST = 2**53
_MOST_SECONDS = 1e9
OMITTED_LINE = "Further lines and parts of the result are left out: the invocation reported too many."
OMITTED_PART = "A part of the result is left out: it is too large."


class ReportQueue:
    """The reports of one run. Its methods never wait, except `flush`."""

    def __init__(
        self,
        job: ClaimedJob,
        scanner: Callable[[], Scanner],
        clock: Clock,
        on_report: Callable[[ReportQueue], None],
        bounds: ReportBounds = BOUNDS,
    ) -> None:
        """`scanner` returns what redacts the reports; `on_report` is called when there is something to store."""
        self.job, self.scanner = job, scanner
        self._clock, self._on_report, self._bounds = clock, on_report, bounds
        self._began = clock.monotonic()
        self._queued: deque[Report] = deque()
        self._queued_bytes = self._total_bytes = self._reports = self._progress_reports = 0
        self._progress: ProgressReport | None = None
        self._queued_progress = 0
        # Advances by the pace with each stored report; how far it is ahead of now is how much of the burst is used.
        self._progress_paid_until = self._began
        self._next_number = 1
        self._batch: ReportBatch | None = None
        self._omitting = False
        self._flushes: list[asyncio.Future[None]] = []
        self.closed = False
        """True if nothing more is stored: the run ended, or another replica has the job."""

    def progress(self, report: ProgressReport) -> None:
        """Report progress. Beyond the burst it replaces what is not stored yet."""
        if self.closed:
            return
        report, now = _bounded(report, self._bounds.line_characters), self._clock.monotonic()
        has_room = self._progress is None and self._queued_progress < self._bounds.progress_burst
        if has_room and now >= self._progress_due:
            self._queued_progress += 1
            self._queued.append(self._made(report, now))
        else:
            self._progress = report
        self._on_report(self)

    def log(self, severity: str, text: str) -> None:
        """Report one line."""
        self._add(LogEntry(severity, text[: self._bounds.line_characters]), len(text))

    def part(self, content: bytes) -> None:
        """Report a part of the result."""
        if len(content) > self._bounds.part_bytes:
            self.log("warning", OMITTED_PART)
        else:
            self._add(PartialContent(content), len(content))

    def put(self, report: Report) -> None:
        """Report what is never left out."""
        if not self.closed:
            self._queued.append(report)
            self._on_report(self)

    async def flush(self) -> None:
        """Return once everything is stored, progress included, or can no longer be stored."""
        if self.closed or self._is_empty:
            return
        flushed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flushes.append(flushed)
        self._on_report(self)
        await flushed

    def close(self) -> None:
        """Store nothing more."""
        self.closed = True
        self._queued.clear()
        self._progress = self._batch = None
        self._end_flushes()

    @property
    def seconds_until_due(self) -> float | None:
        """When there is something to store: 0 for now, None for nothing."""
        if self.closed or self._is_empty:
            return None
        if self._batch is not None or self._queued or self._flushes:
            return 0.0
        return max(self._progress_due - self._clock.monotonic(), 0.0)

    def next_batch(self) -> ReportBatch | None:
        """Return what is due: the batch that was not stored, or a new one. It stays until `stored`."""
        if self._batch is None and not self.closed:
            reports = self._take()
            if reports:
                self._batch = ReportBatch(self.job.invocation_id, self.job.attempt, self._next_number, reports)
                self._next_number += len(reports)
        return self._batch

    def stored(self) -> None:
        """Forget the batch: it is stored."""
        self._batch = None
        if self._is_empty:
            self._end_flushes()

    def _take(self) -> tuple[Report, ...]:
        taken: list[Report] = []
        size = 0
        while self._queued and len(taken) < BATCH_REPORTS and size < BATCH_BYTES:
            report = self._queued.popleft()
            size += _size_of(report)
            self._queued_progress -= isinstance(report, ProgressMade)
            taken.append(report)
        self._queued_bytes = max(0, self._queued_bytes - size)
        now = self._clock.monotonic()
        if self._progress is not None and not self._queued and (self._flushes or now >= self._progress_due):
            taken.append(self._made(self._progress, now))
            self._progress = None
        return tuple(taken)

    @property
    def _progress_due(self) -> float:
        """When the next report of progress may be stored."""
        bounds = self._bounds
        if self._progress_reports >= bounds.frequent_progress:
            return self._progress_paid_until
        return self._progress_paid_until - (bounds.progress_burst - 1) * bounds.progress_seconds

    def _made(self, report: ProgressReport, now: float) -> ProgressMade:
        """Return the event of a report, and count it."""
        self._progress_reports += 1
        bounds = self._bounds
        frequent = self._progress_reports < bounds.frequent_progress
        pace = bounds.progress_seconds if frequent else bounds.slow_progress_seconds
        self._progress_paid_until = max(self._progress_paid_until, now) + pace
        return ProgressMade(report, now - self._began)

    def _add(self, report: Report, size: int) -> None:
        if self.closed:
            return
        size, bounds = size + _REPORT_BYTES, self._bounds
        full = self._reports >= bounds.reports or self._total_bytes + size > bounds.total_bytes
        if full or self._queued_bytes + size > bounds.queued_bytes:
            if not self._omitting:
                self._omitting = True
                self.put(LogEntry("warning", OMITTED_LINE))
            return
        self._omitting = False
        self._reports += 1
        self._total_bytes += size
        self._queued_bytes += size
        self.put(report)

    @property
    def _is_empty(self) -> bool:
        return not self._queued and self._progress is None and self._batch is None

    def _end_flushes(self) -> None:
        for flushed in self._flushes:
            if not flushed.done():
                flushed.set_result(None)
        self._flushes.clear()


def _bounded(report: ProgressReport, characters: int) -> ProgressReport:
    """Return a report whose numbers every reader can represent."""
    percent, remaining = report.percent, report.remaining_seconds
    return ProgressReport(
        message=report.message[:characters],
        percent=min(max(percent, 0.0), 100.0) if percent is not None and isfinite(percent) else None,
        current_step=min(max(report.current_step, 0), _MOST),
        total_steps=min(max(report.total_steps, 0), _MOST),
        bytes_read=min(max(report.bytes_read, 0), _MOST),
        bytes_written=min(max(report.bytes_written, 0), _MOST),
        line_count=min(max(report.line_count, 0), _MOST),
        remaining_seconds=(
            min(max(remaining, 0.0), _MOST_SECONDS) if remaining is not None and isfinite(remaining) else None
        ),
    )


def _size_of(report: Report) -> int:
    if isinstance(report, LogEntry):
        return len(report.text) + _REPORT_BYTES
    if isinstance(report, PartialContent):
        return len(report.content) + _REPORT_BYTES
    if isinstance(report, InputAsked):
        return len(report.schema) + sum(len(each.params) for each in report.requests) + _REPORT_BYTES
    return _REPORT_BYTES
