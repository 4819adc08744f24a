"""Logs: one JSON object a line on standard output, with the trace id of the call they belong to.

Lines below a warning are gathered for a moment and written together: a write gives up the interpreter to the threads of
gRPC, which costs a short call more than everything else its line does. A process that is killed loses at most that moment;
what must not be lost is evidence and goes to the audit log.

Writing never fails for whoever writes. Standard output may be on a disk that is full or at the end of a pipe that nobody reads any
more, and most who write do so because something else went wrong: a loop that ended over its own complaint would never mend it.
Lines that could not be written are counted, and the first that can be says how many.

Warnings and errors may repeat what a caller sent, so they are written without what is sensitive in it. Lines below carry names and
figures only, and are not examined.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import traceback
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from libs.common.call_context import Call, current_call
from libs.common.telemetry.access_log import call_line

GATHER_SECONDS = 0.01
GATHER_BYTES = 64 * 1024
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_URGENT = LEVELS["warning"]


class Log:
    """Writes structured lines. Values are data, never a formatted sentence, so that nothing leaks by accident."""

    def __init__(self, service: str, *, level: str = "info", descriptor: int = 1) -> None:
        self._service = service
        self._threshold = LEVELS[level]
        self._descriptor = descriptor
        self._gathered: list[bytes] = []
        self._size = 0
        self._due = 0.0
        self._lost, self._torn = 0, False
        self._lock = threading.Lock()

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
        if LEVELS[level] >= _URGENT:
            fields = _without_secrets(fields)
        call = current_call()
        if call is not None:
            fields.setdefault("trace_id", call.trace.trace_id)
        self._put(self._line(level, event, fields), at_once=LEVELS[level] >= _URGENT)

    def calls(self, ended: Iterable[tuple[Call, str, float, float]]) -> None:
        """Write what happened in calls that have ended: with which code each did, after how many seconds, and when."""
        if self._threshold <= LEVELS["info"]:
            lines = [call_line(self._service, *each) for each in ended]
            if lines:
                # They were gathered already.
                self._put(b"".join(lines), at_once=True)

    def flush(self) -> None:
        """Write what was gathered. Whole lines only: those of concurrent writers never interleave."""
        with self._lock:
            gathered, self._gathered, self._size = self._gathered, [], 0
            if gathered:
                self._write_out(b"".join(gathered))

    def _write_out(self, lines: bytes) -> None:
        text = self._apology() + lines if self._lost else lines
        left = _written(self._descriptor, text)
        if not left:
            self._lost, self._torn = 0, False
            return
        told, lost = len(left) < len(text), min(left.count(b"\n"), lines.count(b"\n"))
        self._lost = lost if told else self._lost + lost
        self._torn = not text[: -len(left)].endswith(b"\n") if told else self._torn

    def _apology(self) -> bytes:
        """Return the line that says how many are missing; after half a line it begins on a new one."""
        return (b"\n" if self._torn else b"") + self._line("warning", "lines lost", {"count": self._lost})

    def _line(self, level: str, event: str, fields: dict[str, Any]) -> bytes:
        line = {"ts": datetime.now(UTC), "level": level, "service": self._service, "event": event, **fields}
        return _json(line, option=orjson.OPT_APPEND_NEWLINE)

    def _put(self, line: bytes, *, at_once: bool) -> None:
        with self._lock:
            first, now = not self._gathered, time.monotonic()
            self._gathered.append(line)
            self._size += len(line)
            if first:
                self._due = now + GATHER_SECONDS
        # Overdue: the loop that was asked to flush is gone.
        overdue = now > self._due + 1
        if at_once or overdue or self._size >= GATHER_BYTES or (first and not self._flush_soon()):
            self.flush()

    def _flush_soon(self) -> bool:
        """Ask the running loop to flush; False where there is none, such as in a thread or before the process serves."""
        try:
            asyncio.get_running_loop().call_later(GATHER_SECONDS, self.flush)
        except RuntimeError:
            return False
        return True


def _without_secrets(fields: dict[str, Any]) -> dict[str, Any]:
    # Imported by the first warning: most processes never need it, and none needs it to start.
    from libs.common.redaction.scanner import Scanner

    shown: dict[str, Any] = Scanner().value(orjson.loads(_json(fields))).value
    return shown


def _json(value: Any, option: int = 0) -> bytes:
    try:
        return orjson.dumps(value, default=str, option=option)
    except TypeError:
        # A name that is not UTF-8, or a number beyond those of JSON: better spelled out than no line at all.
        return orjson.dumps(_spelled_out(value), option=option)


def _spelled_out(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_spelled_out(str(name)): _spelled_out(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_spelled_out(each) for each in value]
    if value is None or isinstance(value, bool | float):
        return value
    return str(value).encode("utf-8", "backslashreplace").decode()


def _written(descriptor: int, text: bytes) -> bytes:
    """Write as much as can be written; return the rest."""
    try:
        while text:
            text = text[os.write(descriptor, text) :]
    except OSError:
        pass
    return text
