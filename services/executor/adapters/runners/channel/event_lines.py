"""Reads the events that a program writes as lines of JSON, and writes what it gets as lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

import orjson

from libs.common.json.jsonio import dump
from services.executor.adapters.runners.channel.event_limits import STATE_BYTES
from services.executor.adapters.runners.channel.tool_reports import ToolReports
from services.executor.adapters.runners.worker.answer import MalformedAnswerError
from services.executor.adapters.runners.worker.frames import FrameError, read_json
from services.executor.adapters.sandbox.port import EventPipes
from services.executor.domain.model import LogLine, LogSource, RunNotes

# A checkpoint with its state.
_LINE_BYTES = STATE_BYTES + 4096
_CHUNK_BYTES = 64 * 1024
_MAX_COMPLAINTS = 10


class EventLines:
    """The events and the input of one program. A line that is no event is left out, and answered with an error."""

    def __init__(self, pipes: EventPipes, notes: RunNotes) -> None:
        self._pipes, self._notes = pipes, notes
        self._complaints = 0

    def send_resume_state(self, state: bytes | None) -> None:
        """Send the first line: the state to start from."""
        self._write({"resume": None if state is None else orjson.Fragment(state)})

    def request_stop(self, reason: str) -> None:
        """Ask the program to stop."""
        self._write({"cancel": reason})

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send a message, and wait until the program reads. Raises ConnectionError."""
        self._write(message)
        await self._pipes.input.drain()

    async def read(self, reports: ToolReports) -> None:
        """Read until the program closes the pipe."""
        async for number, line in _numbered_lines(self._pipes.events):
            try:
                await reports.take(*_event_of(line))
            except MalformedAnswerError:
                await reports.slow_down()
                self._complain(number)

    def _complain(self, number: int) -> None:
        self._complaints += 1
        if self._complaints <= _MAX_COMPLAINTS:
            message = f"line {number} of the events is no event, or too large"
            self._notes.lines.append(LogLine(LogSource.FAILURE, message))
            self._write({"error": {"reason": "INVALID_REQUEST", "message": message}})

    def _write(self, message: Mapping[str, Any]) -> None:
        # The program may have closed its input, or ended.
        with suppress(ConnectionError, RuntimeError):
            self._pipes.input.write(dump(message) + b"\n")


async def _numbered_lines(stream: asyncio.StreamReader) -> AsyncIterator[tuple[int, bytes]]:
    """Yield the lines with their numbers. Of one that is too long only the start is kept, which is no JSON."""
    number, line = 1, bytearray()
    while chunk := await stream.read(_CHUNK_BYTES):
        *complete, rest = chunk.split(b"\n")
        for part in complete:
            line += part[: _LINE_BYTES + 1 - len(line)]
            yield number, bytes(line)
            line.clear()
            number += 1
        line += rest[: _LINE_BYTES + 1 - len(line)]
    if line:
        yield number, bytes(line)


def _event_of(line: bytes) -> tuple[str, dict[str, Any], bytes]:
    """Return the kind, the fields and the payload of an event. Raises MalformedAnswerError."""
    if len(line) > _LINE_BYTES:
        raise MalformedAnswerError
    try:
        event = read_json(line, _LINE_BYTES)
    except FrameError:
        raise MalformedAnswerError from None
    if not isinstance(event, dict) or len(event) != 1:
        raise MalformedAnswerError
    [(kind, value)] = event.items()
    if kind == "partial":
        return kind, {}, _payload(kind, value)
    if not isinstance(value, dict):
        raise MalformedAnswerError
    if kind == "ask":
        return kind, value, _payload(kind, value.pop("schema")) if "schema" in value else b""
    if kind == "checkpoint":
        return kind, value, _payload(kind, value.pop("state", None))
    return kind, value, b""


def _payload(kind: str, value: Any) -> bytes:
    payload = dump(value)
    if len(payload) > ToolReports.payload_limit(kind):
        raise MalformedAnswerError
    return payload
