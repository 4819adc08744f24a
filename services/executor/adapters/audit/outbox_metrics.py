"""How the outbox stands, for operators."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from services.executor.adapters.audit.outbox_rows import Standing

depth = Gauge("toolmesh_outbox_depth", "Records that wait for the log, of all executors on the database.")
oldest = Gauge("toolmesh_outbox_oldest_seconds", "How long the oldest of them has waited.")
refused = Gauge("toolmesh_outbox_refused", "Records that the log refused and that a person must look at.")
kept_total = Counter("toolmesh_outbox_kept_total", "Outcomes that this process put into the outbox.")
delivered_total = Counter(
    "toolmesh_outbox_delivered_total", "Records that this process brought from the outbox to the log."
)


class OutboxMetrics:
    """Sets the gauges at every look and counts what goes in and out."""

    def observe(self, standing: Standing) -> None:
        """Show how the outbox stands."""
        depth.set(standing.waiting)
        oldest.set(standing.oldest_seconds)
        refused.set(standing.refused)

    def kept(self, count: int) -> None:
        """Count what went in."""
        kept_total.inc(count)
        depth.inc(count)

    def delivered(self, count: int) -> None:
        """Count what the log now has."""
        delivered_total.inc(count)
