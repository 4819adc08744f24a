"""What a tool reports is redacted, whatever its form, and nothing of it disappears from the count."""

from __future__ import annotations

from libs.common.redaction.scanner import Scanner
from services.executor.domain.jobs.event import InputAsked, LogEntry, PartialContent, ProgressMade, Report
from services.executor.domain.jobs.reports.redact import redact
from services.executor.domain.run_channel import ProgressReport

SECRET = "password=hunter2hunter2"
KEY = ["-----BEGIN PRIVATE KEY-----", "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC", "-----END PRIVATE KEY-----"]


def test_every_kind_of_report_is_redacted() -> None:
    reports: list[Report] = [
        ProgressMade(ProgressReport(SECRET, current_step=1), 0.1),
        LogEntry("info", SECRET),
        PartialContent(b'{"password": "hunter2hunter2", "n": 1}'),
        PartialContent(b"not JSON password=hunter2hunter2"),
        InputAsked("q", SECRET, b'{"default": "password=hunter2hunter2"}'),
    ]
    redacted = redact(reports, Scanner())
    assert [type(report) for report in redacted] == [type(report) for report in reports]
    assert "hunter2" not in repr(redacted)
    assert b'"n":1' in redacted[2].content  # type: ignore[union-attr]


def test_a_secret_across_lines_is_found_and_the_number_of_lines_stays() -> None:
    redacted = redact([LogEntry("info", "before"), *(LogEntry("info", line) for line in KEY)], Scanner())
    assert len(redacted) == 4
    assert "MIIEvQ" not in repr(redacted)
    assert redacted[0] == LogEntry("info", "before")
