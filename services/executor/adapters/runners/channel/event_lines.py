"""Reads the events that a program writes as lines of JSON, and writes what it gets as lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec
import orjson
from msgspec import UNSET, Struct, UnsetType

from libs.common.json.jsonio import dump
from services.executor.adapters.runners.channel.tool_reports import ToolReports
from services.executor.adapters.runners.worker.answer import MalformedAnswerError
from services.executor.adapters.sandbox.port import EventPipes
from services.executor.domain.run import LogLine, LogSource, RunNotes

# A line has the fields of an event beside its payload.
_FIELD_BYTES = 16 << 10
_CHUNK_BYTES = 64 * 1024
_MAX_COMPLAINTS = 10


class _Progress(Struct, forbid_unknown_fields=True):
    message: str | UnsetType = UNSET
    percent: float | UnsetType = UNSET
    current_step: int | UnsetType = UNSET
    total_steps: int | UnsetType = UNSET
    bytes_read: int | UnsetType = UNSET
    bytes_written: int | UnsetType = UNSET
    line_count: int | UnsetType = UNSET
    remaining_seconds: float | UnsetType = UNSET


class _Log(Struct, forbid_unknown_fields=True):
    text: str
    severity: str | UnsetType = UNSET


class _Ask(Struct, forbid_unknown_fields=True):
    message: str
    schema: msgspec.Raw | UnsetType = UNSET
    number: int | UnsetType = UNSET


class _Checkpoint(Struct, forbid_unknown_fields=True):
    state: msgspec.Raw
    event: str | UnsetType = UNSET
    label: str | UnsetType = UNSET
    number: int | UnsetType = UNSET


class _Event(Struct, forbid_unknown_fields=True):
    """A line: exactly one of these. Values that the mesh only passes on are not parsed."""

    progress: _Progress | UnsetType = UNSET
    log: _Log | UnsetType = UNSET
    partial: msgspec.Raw | UnsetType = UNSET
    ask: _Ask | UnsetType = UNSET
    checkpoint: _Checkpoint | UnsetType = UNSET


_decoder = msgspec.json.Decoder(_Event)
_PAYLOADS = ("schema", "state")


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
        limit = max(reports.payload_limit("checkpoint"), reports.payload_limit("partial")) + _FIELD_BYTES
        async for number, line in _numbered_lines(self._pipes.events, limit):
            try:
                kind, fields, payload = _event_of(line, limit)
                if len(payload) > reports.payload_limit(kind):
                    raise MalformedAnswerError
                await reports.take(kind, fields, payload)
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


async def _numbered_lines(stream: asyncio.StreamReader, limit: int) -> AsyncIterator[tuple[int, bytes]]:
    """Yield the lines with their numbers. Of one that is too long only the start is kept, which is no JSON."""
    number, line = 1, bytearray()
    while chunk := await stream.read(_CHUNK_BYTES):
        *complete, rest = chunk.split(b"\n")
        for part in complete:
            line += part[: limit + 1 - len(line)]
            yield number, bytes(line)
            line.clear()
            number += 1
        line += rest[: limit + 1 - len(line)]
    if line:
        yield number, bytes(line)


def _event_of(line: bytes, limit: int) -> tuple[str, dict[str, Any], bytes]:
    """Return the kind, the fields and the payload of an event. Raises MalformedAnswerError."""
    if len(line) > limit:
        raise MalformedAnswerError
    try:
        event = _decoder.decode(line)
    except (msgspec.DecodeError, RecursionError):
        raise MalformedAnswerError from None
    kinds = _set_fields(event)
    if len(kinds) != 1:
        raise MalformedAnswerError
    [(kind, value)] = kinds.items()
    if isinstance(value, msgspec.Raw):
        return kind, {}, bytes(value)
    fields = _set_fields(value)
    payload = next((fields.pop(name) for name in _PAYLOADS if name in fields), None)
    return kind, fields, b"" if payload is None else bytes(payload)


def _set_fields(value: Struct) -> dict[str, Any]:
    return {name: field for name in value.__struct_fields__ if (field := getattr(value, name)) is not UNSET}
