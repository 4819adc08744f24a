"""Forwards what a running tool reports to the channel of its run, and the answers to the tool."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec
import orjson

from libs.common.errors import MeshError
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.channel.event_limits import LARGE_BYTES, PARTIAL_BYTES, SCHEMA_BYTES
from services.executor.adapters.runners.channel.event_rate import EventRate
from services.executor.adapters.runners.channel.parse_reports import (
    parse_checkpoint,
    parse_line,
    parse_progress,
    parse_question,
)
from services.executor.adapters.runners.worker.answer import MalformedAnswerError
from services.executor.domain import errors
from services.executor.domain.run import RunRequest
from services.executor.domain.run_channel import RunChannel
from services.executor.domain.tool import Tool

Reply: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]
"""Sends a message to the tool."""


class ToolReports:
    """The reports of one run. A question or a checkpoint is answered while further reports are read."""

    def __init__(
        self, channel: RunChannel, tool: Tool, work: RunRequest, reply: Reply, log: Log, *, state_bytes: int
    ) -> None:
        self._channel, self._tool, self._work, self._reply, self._log = channel, tool, work, reply, log
        self._payload_bytes = {"partial": PARTIAL_BYTES, "ask": SCHEMA_BYTES, "checkpoint": state_bytes}
        self._rate = EventRate()
        self._exchange: asyncio.Task[None] | None = None

    def payload_limit(self, kind: Any) -> int:
        """Return the largest payload of a kind of report; 0 for none."""
        return self._payload_bytes.get(kind, 0) if isinstance(kind, str) else 0

    async def take(self, kind: Any, fields: Any, payload: bytes) -> None:
        """Take a report. Waits where the tool reports too fast. Raises MalformedAnswerError."""
        await self._rate.take(1 + len(payload) // LARGE_BYTES)
        if not isinstance(fields, dict):
            raise MalformedAnswerError
        match kind:
            case "progress":
                report = parse_progress(fields)
                if self._tool.progress_supported:
                    self._channel.progress(report)
            case "log":
                self._channel.log(*parse_line(fields))
            case "partial":
                self._channel.partial_result(_checked_json(payload))
            case "ask" | "checkpoint":
                self._start_exchange(kind, fields, payload)
            case _:
                raise MalformedAnswerError

    async def slow_down(self) -> None:
        """Count something that is no report like one."""
        await self._rate.take()

    def end_rate(self) -> None:
        """Read what is left without a limit: the process has ended, so it is little."""
        self._rate.lift()

    async def close(self) -> None:
        """Stop to wait for an answer: the run is over."""
        if self._exchange is not None:
            self._exchange.cancel()
            await asyncio.wait([self._exchange])

    def _start_exchange(self, kind: str, fields: dict[str, Any], payload: bytes) -> None:
        number = fields.get("number", 0)
        if type(number) is not int or (self._exchange is not None and not self._exchange.done()):
            raise MalformedAnswerError
        answering = self._ask(fields, payload) if kind == "ask" else self._save(fields, payload)
        self._exchange = asyncio.create_task(self._answer(number, answering), name=f"tool-{kind}")

    async def _answer(self, number: int, answering: Awaitable[dict[str, Any]]) -> None:
        try:
            answer = await answering
        except MeshError as error:
            answer = _error_form(error)
        except MalformedAnswerError:
            answer = _error_form(errors.execution_failed("the message is malformed"))
        except Exception as cause:
            self._log.error("a report of a tool failed", tool=self._tool.name, cause=cause, scanner=self._work.scanner)
            answer = _error_form(errors.unexpected())
        # The process may have ended.
        try:
            await self._reply({"reply": number, **answer})
        except ConnectionError:
            return

    async def _ask(self, fields: dict[str, Any], schema: bytes) -> dict[str, Any]:
        answer = await self._channel.ask(parse_question(fields, schema))
        return {"value": orjson.Fragment(answer)}

    async def _save(self, fields: dict[str, Any], state: bytes) -> dict[str, Any]:
        await self._channel.save(parse_checkpoint(fields, _checked_json(state)))
        return {"saved": True}


def _checked_json(payload: bytes) -> bytes:
    """Return a payload that is JSON. It is not parsed: a value of many small parts takes far more time and memory."""
    try:
        msgspec.json.decode(payload, type=msgspec.Raw)
        payload.decode()
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise MalformedAnswerError from None
    return payload


def _error_form(error: MeshError) -> dict[str, Any]:
    return {"error": {"reason": error.reason.name, "message": error.message}}
