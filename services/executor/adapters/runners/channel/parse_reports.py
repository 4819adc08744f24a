"""Parses what a running tool reports, which is untrusted input."""

from __future__ import annotations

import math
from typing import Any

from services.executor.adapters.runners.channel.event_limits import MAX_COUNT, MAX_LABEL, MAX_TEXT
from services.executor.adapters.runners.worker.answer import MalformedAnswerError, printable, printable_line
from services.executor.domain.run_channel import CheckpointState, InputQuestion, ProgressReport

SEVERITIES = ("debug", "info", "warning", "error")
_COUNTS = ("current_step", "total_steps", "bytes_read", "bytes_written", "line_count")
_MAX_SECONDS = 366 * 86_400.0


def parse_progress(fields: dict[str, Any]) -> ProgressReport:
    """Return a report of progress. Numbers that say nothing are left out. Raises MalformedAnswerError."""
    counts = {name: _count(fields[name]) for name in _COUNTS if name in fields}
    percent, seconds = _number(fields, "percent"), _number(fields, "remaining_seconds")
    return ProgressReport(
        message=printable(_text(fields, "message", MAX_TEXT)),
        percent=None if percent is None else min(max(percent, 0.0), 100.0),
        remaining_seconds=None if seconds is None else min(max(seconds, 0.0), _MAX_SECONDS),
        **counts,
    )


def parse_line(fields: dict[str, Any]) -> tuple[str, str]:
    """Return the severity and the text of a log line, without control characters. Raises MalformedAnswerError."""
    severity = _text(fields, "severity", MAX_LABEL) or "info"
    if severity not in SEVERITIES:
        raise MalformedAnswerError
    return severity, printable_line(_text(fields, "text", MAX_TEXT))


def parse_question(fields: dict[str, Any], schema: bytes) -> InputQuestion:
    """Return a question. Raises MalformedAnswerError."""
    text = _text(fields, "message", MAX_TEXT)
    return InputQuestion("".join(letter for letter in text if letter.isprintable() or letter in "\n\t"), schema)


def parse_checkpoint(fields: dict[str, Any], state: bytes) -> CheckpointState:
    """Return a checkpoint. Raises MalformedAnswerError."""
    event, label = (printable(_text(fields, name, MAX_LABEL)) for name in ("event", "label"))
    return CheckpointState(state, event, label)


def _text(fields: dict[str, Any], name: str, limit: int) -> str:
    text = fields.get(name, "")
    if not isinstance(text, str):
        raise MalformedAnswerError
    return text[:limit]


def _count(value: Any) -> int:
    if type(value) is not int:
        raise MalformedAnswerError
    return min(max(value, 0), MAX_COUNT)


def _number(fields: dict[str, Any], name: str) -> float | None:
    value = fields.get(name)
    if value is None:
        return None
    if type(value) not in (int, float) or not math.isfinite(value):
        raise MalformedAnswerError
    return float(value)
