"""Checkpoints, measured and logged."""

from __future__ import annotations

from libs.common.telemetry.log import Log
from services.audit import metrics
from services.audit.domain.model import SignedCheckpoint


class CheckpointMetrics:
    """Keeps the promises of the port with metrics and the process's log."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def report_issued(self, checkpoint: SignedCheckpoint) -> None:
        """Keep the promise of the port."""
        metrics.checkpoints_issued_total.inc()
        metrics.checkpoint_size.set(checkpoint.first_sequence + checkpoint.size)

    def report_failure(self, what: str, error: Exception) -> None:
        """Keep the promise of the port."""
        metrics.checkpoints_failed_total.labels(what).inc()
        self._log.error("checkpoint failed", what=what, cause=error)
