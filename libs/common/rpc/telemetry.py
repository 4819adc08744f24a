"""First stage: continues the trace, counts and times the call, and writes its one log line.

What is to be told about calls is gathered for a moment and told together: one after the other it costs a third, because the
processor has it at hand, and no caller waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import grpc
import grpc.aio

from libs.common.call_context import Call, enter
from libs.common.telemetry.fast_metrics import FastCounter
from libs.common.telemetry.log import Log
from libs.common.telemetry.metrics import call_seconds, calls_in_flight, calls_total
from libs.common.telemetry.spans import Tracing
from libs.common.trace_context import RemoteTrace

_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}
# Short enough that whoever looks at a log or a metric finds what just happened.
GATHER_SECONDS = 0.01
_QUIET = ("/grpc.health.", "/grpc.reflection.")


# What came with the call that the running task serves: gRPC reads it once to find the method, and would read it again if asked.
_ARRIVED: ContextVar[Any] = ContextVar("toolmesh_arrived", default=None)


def arrived(metadata: Any) -> None:
    """Take what came with the call that the running task is about to serve."""
    _ARRIVED.set(metadata)


class Meters:
    """The metrics of one method, looked up once: finding a labelled metric costs more than counting with it."""

    def __init__(self, method: str) -> None:
        self.in_flight = calls_in_flight.labels(method)
        self._method, self._seconds = method, call_seconds.labels(method)
        self._totals: dict[str, FastCounter] = {}

    def ended(self, code: str, elapsed: float) -> None:
        """Count a call that is over."""
        self.in_flight.dec()
        self._seconds.observe(elapsed)
        total = self._totals.get(code)
        if total is None:
            total = self._totals[code] = calls_total.labels(self._method, code)
        total.inc()


class AccessLog:
    """Counts calls and writes a line for each, a moment after they ended."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._ended: list[tuple[Meters, Call, str, float]] = []

    def ended(self, meters: Meters, call: Call, code: str) -> None:
        """Note how a call ended."""
        if not self._ended:
            asyncio.get_running_loop().call_later(GATHER_SECONDS, self.tell)
        self._ended.append((meters, call, code, time.monotonic()))

    def tell(self) -> None:
        """Tell of every call that has ended."""
        ended, self._ended = self._ended, []
        for meters, call, code, end in ended:
            meters.ended(code, end - call.started)
        # The clock that calls are timed by counts from some moment, which is this one.
        origin = time.time() - time.monotonic()
        self._log.calls(
            (call, code, end - call.started, origin + end)
            for _, call, code, end in ended
            if not call.method.startswith(_QUIET)
        )


class Telemetry:
    """Observes every call from the outside."""

    def __init__(self, log: Log, tracing: Tracing, sample_ratio: float) -> None:
        self._book, self._tracing, self._recording = AccessLog(log), tracing, tracing.recording
        self._sample_ratio = sample_ratio
        self._untraced = RemoteTrace(None, "", sample_ratio)
        self.tell = self._book.tell

    def observing(self, method: str, counted_as: str) -> tuple[Callable[[Any], Call], Callable[[Call, str], None]]:
        """Return what makes the call that the rest of the chain fills in, of this method, and what notes how it ended."""
        meters, book = Meters(counted_as), self._book

        def begin(context: Any) -> Call:
            call = self._arrived(method, context)
            enter(call)
            meters.in_flight.inc()
            if self._recording:
                call.span = self._tracing.server_span(call)
            return call

        def end(call: Call, code: str) -> None:
            if call.span is not None:
                self._tracing.end(call.span, code)
            book.ended(meters, call, code)

        return begin, end

    def _arrived(self, method: str, context: Any) -> Call:
        metadata = dict(_ARRIVED.get() or context.invocation_metadata() or ())
        heard = self._untraced
        if "traceparent" in metadata:
            heard = RemoteTrace(metadata["traceparent"], metadata.get("tracestate", ""), self._sample_ratio)
        call = Call(method, heard, token=metadata.get("authorization", ""))
        if "x-request-id" in metadata:
            call.request_id = _request_id(metadata["x-request-id"])
        call.offered = remaining = context.time_remaining()
        if remaining is not None:
            call.deadline = call.started + remaining
        return call


def code_of(context: Any, error: BaseException | None) -> str:
    """Return the name of the status that a call ends with."""
    if error is None:
        return "OK"
    if not isinstance(error, grpc.aio.AbortError):
        return "CANCELLED"
    code = context.code()
    return code.name if isinstance(code, grpc.StatusCode) else _NAMES.get(code, "UNKNOWN")


def _request_id(sent: str | bytes) -> str:
    """What a caller calls its request goes into logs and on to peers: a UUID as it is, anything else without what it gives away."""
    name = str(sent)[:128]
    if not name or (len(name) == 36 and name[8] == name[13] == name[18] == name[23] == "-"):
        return name
    from libs.common.redaction.scanner import Scanner

    return str(Scanner().text(name).value)
