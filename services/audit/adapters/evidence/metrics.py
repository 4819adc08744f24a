"""Reports checkpoints in metrics and in the log."""

from __future__ import annotations

from libs.common.telemetry.log import Log
from services.audit import metrics
from services.audit.domain.model import SignedCheckpoint


class CheckpointMetrics:
    """Implements CheckpointObserver."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def report_issued(self, checkpoint: SignedCheckpoint) -> None:
        """Implement `CheckpointObserver.report_issued`."""
        metrics.checkpoints_issued_total.inc()
        metrics.checkpoint_size.set(checkpoint.first_sequence + checkpoint.size)

    def report_failure(self, what: str, error: Exception) -> None:
        """Implement `CheckpointObserver.report_failure`."""
        metrics.checkpoints_failed_total.labels(what).inc()
        self._log.error("checkpoint failed", what=what, cause=error)
