"""What the log tells about itself. Times and sizes are those of commits, which many batches share."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

from libs.common.telemetry.metrics import SECONDS

RECORDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384)

records_appended_total = Counter("toolmesh_audit_records_appended_total", "Records made durable.")
records_repeated_total = Counter(
    "toolmesh_audit_records_repeated_total", "Records that the log held already and acknowledged again."
)
commits_failed_total = Counter("toolmesh_audit_commits_failed_total", "Commits that did not succeed.")
commit_records = Histogram("toolmesh_audit_commit_records", "How many records one commit took.", buckets=RECORDS)
commit_seconds = Histogram("toolmesh_audit_commit_seconds", "How long one commit took.", buckets=SECONDS)
