"""Prometheus metrics of the audit service. Times and sizes are those of commits, which several batches share."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from libs.common.telemetry.fast_metrics import fast_counter, fast_histogram
from libs.common.telemetry.metrics import SECONDS

RECORDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384)

# Updated with every commit, hence the fast variants.
records_appended_total = fast_counter("toolmesh_audit_records_appended_total", "Records made durable.", ()).labels()
records_repeated_total = fast_counter(
    "toolmesh_audit_records_repeated_total", "Records that the log held already and acknowledged again.", ()
).labels()
commits_failed_total = fast_counter("toolmesh_audit_commits_failed_total", "Commits that did not succeed.", ()).labels()
commit_records = fast_histogram(
    "toolmesh_audit_commit_records", "How many records one commit took.", (), buckets=RECORDS
).labels()
commit_seconds = fast_histogram(
    "toolmesh_audit_commit_seconds", "How long one commit took.", (), buckets=SECONDS
).labels()

relay_leads = Gauge("toolmesh_audit_relay_leads", "1 in the replica that relays, 0 in those that stand by.")
relay_records_behind = Gauge("toolmesh_audit_relay_records_behind", "Records that the sink has not acknowledged.")
relay_seconds_behind = Gauge("toolmesh_audit_relay_seconds_behind", "Age of the oldest record not acknowledged.")
relay_records_total = Counter("toolmesh_audit_relay_records_total", "Records that the sink has acknowledged.")
relay_missed_total = Counter("toolmesh_audit_relay_missed_total", "Records archived before they could be relayed.")
relay_failures_total = Counter("toolmesh_audit_relay_failures_total", "Turns of the relay that ended in a failure.")
usage_records_total = Counter("toolmesh_audit_usage_records_total", "Records that this replica counted for usage.")
usage_records_behind = Gauge("toolmesh_audit_usage_records_behind", "Records that were not counted yet.")
usage_failures_total = Counter("toolmesh_audit_usage_failures_total", "Turns of counting that ended in a failure.")

checkpoints_issued_total = Counter("toolmesh_audit_checkpoints_issued_total", "Checkpoints signed and stored.")
checkpoints_failed_total = Counter(
    "toolmesh_audit_checkpoints_failed_total",
    "Attempts to sign, finish or anchor a checkpoint that failed, by what failed.",
    ["what"],
)
checkpoint_size = Gauge("toolmesh_audit_checkpoint_size", "How many records of the log the newest checkpoint covers.")
