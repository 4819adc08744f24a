"""The log of one call of a tool, and its redaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from libs.common.redaction.known_values import known_values
from libs.common.redaction.scanner import Scanner
from services.executor.domain.run import LogLine, RunNotes, RunRequest, RunResult
from services.executor.domain.tool import Tool


@dataclass(frozen=True, slots=True)
class ToolLog:
    """What one call printed and logged."""

    invocation_id: str
    tool: str
    """The qualified name."""
    version: str
    tenant: str
    subject: str
    lines: tuple[LogLine, ...]
    omitted: int = 0
    """The number of characters beyond the limit of a call."""
    create_time: datetime | None = None
    expire_time: datetime | None = None
    scanners: tuple[Scanner, ...] = field(default=(), repr=False)
    """They still have to redact the lines."""

    @property
    def size(self) -> int:
        """Roughly how many bytes it takes."""
        return sum(len(line.text) for line in self.lines) + _ROW_BYTES


_ROW_BYTES = 256


def log_of(tool: Tool, run: RunRequest, result: RunResult | None, scanner: Scanner) -> ToolLog:
    """Return the log of a run, for a scanner that knows the sensitive arguments. Those of the result are hidden too."""
    notes: RunNotes = run.notes
    scanners: Sequence[Scanner] = (scanner,)
    declared: Any = tool.output.declared
    if result is not None and declared is not None:
        scanners = (scanner, scanner.knowing(known_values(result.value, declared)))
    return ToolLog(
        # The further attempts of a job are found under its invocation.
        run.invocation_id.partition(".")[0],
        tool.qualified,
        tool.version,
        run.tenant,
        run.subject,
        tuple(notes.lines),
        notes.omitted,
        scanners=tuple(scanners),
    )


def redact(log: ToolLog) -> list[LogLine]:
    """Return the redacted lines. Consecutive lines of one source are scanned together: a secret may span several."""
    lines: list[LogLine] = []
    block: list[str] = []
    for index, line in enumerate(log.lines):
        block.append(line.text)
        if index + 1 == len(log.lines) or log.lines[index + 1].source is not line.source:
            text = "\n".join(block)
            for scanner in log.scanners:
                text = str(scanner.text(text).value)
            lines += [LogLine(line.source, redacted) for redacted in text.split("\n")]
            block = []
    return lines
