"""Structured logs: one JSON object per line on standard output, with the trace id of the call.

Lines below a warning are buffered for a moment and written together: a write releases the interpreter to gRPC's
threads, which costs a short call more than the rest of its line. A killed process loses at most that moment; evidence
goes to the audit log instead.

Writing never raises: standard output may be a full disk or a closed pipe. Lost lines are counted, and the next line
that can be written reports how many.

Warnings and errors may repeat a caller's input, so they are redacted. Lower levels carry names and numbers only.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import traceback
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from libs.common.call_context import Call, current_call
from libs.common.telemetry.access_log import call_line

if TYPE_CHECKING:
    from libs.common.redaction.scanner import Scanner

FLUSH_SECONDS = 0.01
FLUSH_BYTES = 64 * 1024
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_URGENT = LEVELS["warning"]


class Log:
    """Writes structured lines. Values are fields, never a formatted sentence."""

    def __init__(self, service: str, *, level: str = "info", descriptor: int = 1) -> None:
        self._service = service
        self._threshold = LEVELS[level]
        self._descriptor = descriptor
        self._buffer: list[bytes] = []
        self._size = 0
        self._due = 0.0
        self._lost, self._torn = 0, False
        self._lock = threading.Lock()

    def debug(self, event: str, **fields: Any) -> None:
        """Write a debug line."""
        self._write("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Write an info line."""
        self._write("info", event, fields)

    def warning(self, event: str, *, scanner: Scanner | None = None, **fields: Any) -> None:
        """Write a warning. A scanner of a call removes what that call knows to be sensitive."""
        self._write("warning", event, fields, scanner)

    def error(
        self, event: str, *, cause: BaseException | None = None, scanner: Scanner | None = None, **fields: Any
    ) -> None:
        """Write an error with its cause. The cause is only logged."""
        if cause is not None:
            fields["cause"] = "".join(traceback.format_exception(cause, limit=30))[-8000:]
        self._write("error", event, fields, scanner)

    def _write(self, level: str, event: str, fields: dict[str, Any], scanner: Scanner | None = None) -> None:
        if LEVELS[level] < self._threshold:
            return
        if LEVELS[level] >= _URGENT:
            fields = _redact(fields, scanner)
        call = current_call()
        if call is not None:
            fields.setdefault("trace_id", call.trace.trace_id)
        self._put(self._line(level, event, fields), immediate=LEVELS[level] >= _URGENT)

    def calls(self, ended: Iterable[tuple[Call, str, float, float]]) -> None:
        """Write a line for each ended call: the call, its code, its seconds, and when it ended."""
        if self._threshold <= LEVELS["info"]:
            lines = [call_line(self._service, *call) for call in ended]
            if lines:
                # They were buffered already.
                self._put(b"".join(lines), immediate=True)

    def flush(self) -> None:
        """Write the buffered lines. Whole lines only: those of concurrent writers never interleave."""
        with self._lock:
            buffered, self._buffer, self._size = self._buffer, [], 0
            if buffered:
                self._write_out(b"".join(buffered))

    def _write_out(self, lines: bytes) -> None:
        text = self._lost_lines_notice() + lines if self._lost else lines
        left = _write_all(self._descriptor, text)
        if not left:
            self._lost, self._torn = 0, False
            return
        progressed, lost = len(left) < len(text), min(left.count(b"\n"), lines.count(b"\n"))
        self._lost = lost if progressed else self._lost + lost
        self._torn = not text[: -len(left)].endswith(b"\n") if progressed else self._torn

    def _lost_lines_notice(self) -> bytes:
        """Return the line with the number of lost lines; after half a line it begins on a new one."""
        return (b"\n" if self._torn else b"") + self._line("warning", "lines lost", {"count": self._lost})

    def _line(self, level: str, event: str, fields: dict[str, Any]) -> bytes:
        line = {"ts": datetime.now(UTC), "level": level, "service": self._service, "event": event, **fields}
        return _json(line, option=orjson.OPT_APPEND_NEWLINE)

    def _put(self, line: bytes, *, immediate: bool) -> None:
        with self._lock:
            first, now = not self._buffer, time.monotonic()
            self._buffer.append(line)
            self._size += len(line)
            if first:
                self._due = now + FLUSH_SECONDS
        # Overdue: the loop that should flush is gone.
        overdue = now > self._due + 1
        if immediate or overdue or self._size >= FLUSH_BYTES or (first and not self._flush_soon()):
            self.flush()

    def _flush_soon(self) -> bool:
        """Schedule a flush on the running loop; False without one, as in a thread or before the process serves."""
        try:
            asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)
        except RuntimeError:
            return False
        return True


def _redact(fields: dict[str, Any], scanner: Scanner | None) -> dict[str, Any]:
    if scanner is None:
        # Imported by the first warning: no process needs it to start.
        from libs.common.redaction.scanner import Scanner

        scanner = Scanner()
    shown: dict[str, Any] = scanner.value(orjson.loads(_json(fields))).value
    return shown


def _json(value: Any, option: int = 0) -> bytes:
    try:
        return orjson.dumps(value, default=str, option=option)
    except TypeError:
        # A name that is not UTF-8 or a number out of range: spell it out rather than lose the line.
        return orjson.dumps(_spell_out(value), option=option)


def _spell_out(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_spell_out(str(name)): _spell_out(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_spell_out(each) for each in value]
    if value is None or isinstance(value, bool | float):
        return value
    return str(value).encode("utf-8", "backslashreplace").decode()


def _write_all(descriptor: int, text: bytes) -> bytes:
    """Write as much as possible; return the rest."""
    try:
        while text:
            text = text[os.write(descriptor, text) :]
    except OSError:
        pass
    return text
