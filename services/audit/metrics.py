"""Prometheus metrics of the audit service. Times and sizes are those of commits, which several batches share."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from libs.common.telemetry.fast_metrics import fast_counter, fast_histogram
from libs.common.telemetry.metrics import SECONDS

RECORDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384)

# Updated with every commit, hence the fast variants.
records_appended_total = fast_counter("toolmesh_audit_records_appended_total", "Records made durable.", ()).labels()
records_repeated_total = fast_counter(
    "toolmesh_audit_records_repeated_total", "Repeated records, already stored and acknowledged again.", ()
).labels()
commits_failed_total = fast_counter("toolmesh_audit_commits_failed_total", "Failed commits.", ()).labels()
commit_records = fast_histogram("toolmesh_audit_commit_records", "Records per commit.", (), buckets=RECORDS).labels()
commit_seconds = fast_histogram("toolmesh_audit_commit_seconds", "Duration of a commit.", (), buckets=SECONDS).labels()

relay_leads = Gauge("toolmesh_audit_relay_leads", "1 in the relaying replica, 0 in the others.")
relay_records_behind = Gauge("toolmesh_audit_relay_records_behind", "Records not yet acknowledged by the sink.")
relay_seconds_behind = Gauge("toolmesh_audit_relay_seconds_behind", "Age of the oldest record not acknowledged.")
relay_records_total = Counter("toolmesh_audit_relay_records_total", "Records acknowledged by the sink.")
relay_missed_total = Counter("toolmesh_audit_relay_missed_total", "Records archived before they could be relayed.")
relay_failures_total = Counter("toolmesh_audit_relay_failures_total", "Failed attempts of the relay.")
usage_records_total = Counter("toolmesh_audit_usage_records_total", "Records counted for usage by this replica.")
usage_records_behind = Gauge("toolmesh_audit_usage_records_behind", "Records not yet counted.")
usage_failures_total = Counter("toolmesh_audit_usage_failures_total", "Failed attempts of usage counting.")

checkpoints_issued_total = Counter("toolmesh_audit_checkpoints_issued_total", "Checkpoints signed and stored.")
checkpoints_failed_total = Counter(
    "toolmesh_audit_checkpoints_failed_total",
    "Failed attempts to sign or anchor a checkpoint, by step.",
    ["what"],
)
checkpoint_size = Gauge("toolmesh_audit_checkpoint_size", "Records covered by the newest checkpoint.")
