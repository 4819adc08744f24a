"""Logs: one JSON object a line on standard output, with the trace id of the call they belong to."""

from __future__ import annotations

import os
import traceback
from datetime import UTC, datetime
from typing import Any

import orjson

from libs.common.rpc.call import current_call

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class Log:
    """Writes structured lines. Values are data, never a formatted sentence, so that nothing leaks by accident."""

    def __init__(self, service: str, *, level: str = "info", descriptor: int = 1) -> None:
        self._service = service
        self._threshold = LEVELS[level]
        self._descriptor = descriptor

    def debug(self, event: str, **fields: Any) -> None:
        """Write what only a developer wants to see."""
        self._write("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Write what happened."""
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Write what should not happen often."""
        self._write("warning", event, fields)

    def error(self, event: str, *, cause: BaseException | None = None, **fields: Any) -> None:
        """Write what went wrong, with its cause. The cause goes to the log and nowhere else."""
        if cause is not None:
            fields["cause"] = "".join(traceback.format_exception(cause, limit=30))[-8000:]
        self._write("error", event, fields)

    def _write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if LEVELS[level] < self._threshold:
            return
        line = {"ts": datetime.now(UTC), "level": level, "service": self._service, "event": event, **fields}
        call = current_call()
        if call is not None:
            line.setdefault("trace_id", call.trace.trace_id)
        # One write a line: lines of concurrent writers never interleave, and a killed process loses none it wrote.
        os.write(self._descriptor, orjson.dumps(line, default=str, option=orjson.OPT_APPEND_NEWLINE))
