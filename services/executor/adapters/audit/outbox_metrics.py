"""Metrics of the outbox."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from services.executor.adapters.audit.outbox_rows import OutboxStatus

depth = Gauge("toolmesh_outbox_depth", "Records that wait for delivery to the log, of all executors on the database.")
oldest = Gauge("toolmesh_outbox_oldest_seconds", "Age of the oldest waiting record.")
refused = Gauge("toolmesh_outbox_refused", "Records that the log refused and that need inspection.")
stored_total = Counter("toolmesh_outbox_kept_total", "Outcomes that this process stored in the outbox.")
delivered_total = Counter(
    "toolmesh_outbox_delivered_total", "Records that this process delivered from the outbox to the log."
)


class OutboxMetrics:
    """Updates the gauges from the table and counts stored and delivered records."""

    def observe(self, status: OutboxStatus) -> None:
        """Set the gauges."""
        depth.set(status.waiting)
        oldest.set(status.oldest_seconds)
        refused.set(status.refused)

    def count_stored(self, count: int) -> None:
        """Count stored records."""
        stored_total.inc(count)
        depth.inc(count)

    def count_delivered(self, count: int) -> None:
        """Count delivered records."""
        delivered_total.inc(count)
