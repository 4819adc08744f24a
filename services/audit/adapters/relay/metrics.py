"""Reports the state of the relay in metrics, in the log and on the operations port."""

from __future__ import annotations

from typing import Any

from libs.common.telemetry.log import Log
from services.audit import metrics
from services.audit.domain.relay.ports import RelayStatus

# A lag above this is logged once, and once more when it is over.
LATE_SECONDS = 60.0


class RelayMetrics:
    """Implements RelayObserver."""

    def __init__(self, log: Log, sink: str, *, late: float = LATE_SECONDS) -> None:
        self._log, self._sink, self._late_after = log, sink, late
        self._status: RelayStatus | None = None
        self._late = self._failing = False

    def report_status(self, status: RelayStatus) -> None:
        """Implement `RelayObserver.report_status`."""
        if self._status is None or self._status.leads != status.leads:
            self._log.info("relay", sink=self._sink, leads=status.leads, records_behind=status.records_behind)
        self._status = status
        metrics.relay_leads.set(status.leads)
        metrics.relay_records_behind.set(status.records_behind)
        metrics.relay_seconds_behind.set(status.seconds_behind)
        late = status.seconds_behind > self._late_after
        if late != self._late:
            write = self._log.warning if late else self._log.info
            write("relay is late" if late else "relay caught up", sink=self._sink, **_lag(status))
        self._late = late

    def report_relayed(self, records: int) -> None:
        """Implement `RelayObserver.report_relayed`."""
        metrics.relay_records_total.inc(records)
        if self._failing:
            self._failing = False
            self._log.info("relay recovered", sink=self._sink)

    def report_missed(self, records: int) -> None:
        """Implement `RelayObserver.report_missed`."""
        metrics.relay_missed_total.inc(records)
        self._log.error("records were archived before they were relayed", sink=self._sink, records=records)

    def report_failure(self, error: Exception, pause: float) -> None:
        """Implement `RelayObserver.report_failure`."""
        metrics.relay_failures_total.inc()
        if not self._failing:
            self._log.error("relay failed, will retry", cause=error, sink=self._sink, pause=pause)
        self._failing = True

    def describe(self) -> str:
        """Return a line for the operations port."""
        if self._status is None:
            return f"relay {self._sink}: starting\n"
        role = "leads" if self._status.leads else "stands by"
        state = "failing" if self._failing else role
        lag = _lag(self._status)
        return f"relay {self._sink}: {state}, {lag['records_behind']} records and {lag['seconds_behind']} s behind\n"


def _lag(status: RelayStatus) -> dict[str, Any]:
    return {"records_behind": status.records_behind, "seconds_behind": round(status.seconds_behind, 1)}
