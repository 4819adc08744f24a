"""Measures commits of the log."""

from __future__ import annotations

import time
from collections.abc import Sequence

from services.audit import metrics
from services.audit.domain.errors import RecordIdTakenError
from services.audit.domain.model import AppendResult, Entry
from services.audit.domain.ports import LogWriter


class MeteredWriter:
    """Decorates a writer with metrics of its commits."""

    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer

    async def append(self, entries: Sequence[Entry]) -> AppendResult:
        """Implement `LogWriter.append`."""
        started = time.monotonic()
        try:
            appended = await self._writer.append(entries)
        except RecordIdTakenError:
            # Not a failure: the valid batches are appended again.
            raise
        except Exception:
            metrics.commits_failed_total.inc()
            raise
        metrics.commit_seconds.observe(time.monotonic() - started)
        metrics.commit_records.observe(len(entries))
        metrics.records_appended_total.inc(appended.added)
        metrics.records_repeated_total.inc(len(entries) - appended.added)
        return appended

    def prepare_next(self, entries: Sequence[Entry]) -> None:
        """Implement `LogWriter.prepare_next`."""
        self._writer.prepare_next(entries)
