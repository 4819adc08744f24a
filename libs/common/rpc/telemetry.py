"""First stage: continues the trace, counts and times the call, and writes its log line.

Ended calls are buffered for a moment and recorded together: that costs a third, and no caller waits for it.
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
from libs.common.redaction.request_ids import shown_request_id
from libs.common.telemetry.fast_metrics import FastCounter
from libs.common.telemetry.log import Log
from libs.common.telemetry.metrics import call_seconds, calls_in_flight, calls_total
from libs.common.telemetry.spans import Tracing
from libs.common.trace_context import RemoteTrace

_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}
# Short enough that logs and metrics appear immediate.
FLUSH_SECONDS = 0.01
_QUIET = ("/grpc.health.", "/grpc.reflection.")


# The metadata of the running task's call. gRPC reads it to find the method, and would read it again if asked.
_METADATA: ContextVar[Any] = ContextVar("toolmesh_metadata", default=None)


def set_metadata(metadata: Any) -> None:
    """Keep the metadata of the call that the running task is about to serve."""
    _METADATA.set(metadata)


class MethodMetrics:
    """The metrics of one method. Looked up once, because finding a labelled metric costs more than counting."""

    def __init__(self, method: str) -> None:
        self.in_flight = calls_in_flight.labels(method)
        self._method, self._seconds = method, call_seconds.labels(method)
        self._totals: dict[str, FastCounter] = {}

    def count(self, code: str, elapsed: float) -> None:
        """Count an ended call."""
        self.in_flight.dec()
        self._seconds.observe(elapsed)
        total = self._totals.get(code)
        if total is None:
            total = self._totals[code] = calls_total.labels(self._method, code)
        total.inc()


class AccessLog:
    """Counts ended calls and writes a log line for each, a moment later."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._ended: list[tuple[MethodMetrics, Call, str, float]] = []

    def record(self, metrics: MethodMetrics, call: Call, code: str) -> None:
        """Record the end of a call."""
        if not self._ended:
            asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)
        self._ended.append((metrics, call, code, time.monotonic()))

    def flush(self) -> None:
        """Count and log every recorded call."""
        ended, self._ended = self._ended, []
        for metrics, call, code, end in ended:
            metrics.count(code, end - call.started)
        # The time of day at which the monotonic clock was zero.
        origin = time.time() - time.monotonic()
        self._log.calls(
            (call, code, end - call.started, origin + end)
            for _, call, code, end in ended
            if not call.method.startswith(_QUIET)
        )


class Telemetry:
    """Records every call."""

    def __init__(self, log: Log, tracing: Tracing, sample_ratio: float) -> None:
        self._access_log, self._tracing, self._recording = AccessLog(log), tracing, tracing.recording
        self._sample_ratio = sample_ratio
        self._untraced = RemoteTrace(None, "", sample_ratio)
        self.flush = self._access_log.flush

    def observer(self, method: str, counted_as: str) -> tuple[Callable[[Any], Call], Callable[[Call, str], None]]:
        """Return the functions that begin and end a call of this method."""
        metrics, access_log = MethodMetrics(counted_as), self._access_log

        def begin(context: Any) -> Call:
            call = self._new_call(method, context)
            enter(call)
            metrics.in_flight.inc()
            if self._recording:
                call.span = self._tracing.server_span(call)
            return call

        def end(call: Call, code: str) -> None:
            if call.span is not None:
                self._tracing.end(call.span, code)
            access_log.record(metrics, call, code)

        return begin, end

    def _new_call(self, method: str, context: Any) -> Call:
        pairs = _METADATA.get() or context.invocation_metadata() or ()
        metadata = dict(pairs)
        if len(metadata) < len(pairs):
            _join_repeated(pairs, metadata)
        trace = self._untraced
        if "traceparent" in metadata:
            trace = RemoteTrace(metadata["traceparent"], metadata.get("tracestate", ""), self._sample_ratio)
        call = Call(method, trace, token=metadata.get("authorization", ""))
        if "x-request-id" in metadata:
            call.request_id = shown_request_id(str(metadata["x-request-id"]))
        if "x-deadline-ms" in metadata:
            call.deadline_header = str(metadata["x-deadline-ms"])
        call.offered = remaining = context.time_remaining()
        if remaining is not None:
            call.deadline = call.started + remaining
        return call


# Headers whose meaning would change if one of several were chosen; HTTP joins them.
_JOINED = ("traceparent", "tracestate", "x-deadline-ms")


def _join_repeated(pairs: Any, metadata: dict[str, Any]) -> None:
    for name in _JOINED:
        if name in metadata:
            metadata[name] = ",".join(str(value) for key, value in pairs if key == name)


def code_of(context: Any, error: BaseException | None) -> str:
    """Return the name of the status that a call ends with."""
    if error is None:
        return "OK"
    if not isinstance(error, grpc.aio.AbortError):
        return "CANCELLED"
    code = context.code()
    return code.name if isinstance(code, grpc.StatusCode) else _NAMES.get(code, "UNKNOWN")
