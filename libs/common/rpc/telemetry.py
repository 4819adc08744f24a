"""First stage: continues the trace, counts and times the call, and writes its one log line.

What is to be told about calls is gathered for a moment and told together: one after the other it costs a third, because the
processor has it at hand, and no caller waits for it.
"""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import grpc
import grpc.aio

from libs.common.rpc.call import Call
from libs.common.telemetry.log import Log
from libs.common.telemetry.metrics import call_seconds, calls_in_flight, calls_total
from libs.common.telemetry.spans import Tracing
from libs.common.telemetry.tallies import Number
from libs.common.telemetry.trace import HeardTrace

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
        self._totals: dict[str, Number] = {}

    def ended(self, code: str, elapsed: float) -> None:
        """Count a call that is over."""
        self.in_flight.dec()
        self._seconds.observe(elapsed)
        total = self._totals.get(code)
        if total is None:
            total = self._totals[code] = calls_total.labels(self._method, code)
        total.inc()


class CallBook:
    """Counts calls and writes a line for each, a moment after they ended. The token is never in it."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._meters: dict[str, Meters] = {}
        self._ended: list[tuple[Call, str, float, float]] = []

    def began(self, call: Call) -> None:
        """Note that a call is under way."""
        meters = self._meters.get(call.method) or self._meters.setdefault(call.method, Meters(call.method))
        meters.in_flight.inc()

    def ended(self, call: Call, code: str) -> None:
        """Note how a call ended."""
        if not self._ended:
            asyncio.get_running_loop().call_later(GATHER_SECONDS, self.tell)
        self._ended.append((call, code, time.monotonic() - call.started, time.time()))

    def tell(self) -> None:
        """Tell of every call that has ended."""
        ended, self._ended = self._ended, []
        for call, code, elapsed, _ in ended:
            self._meters[call.method].ended(code, elapsed)
        for call, code, elapsed, moment in ended:
            if not call.method.startswith(_QUIET):
                self._write(call, code, elapsed, moment)

    def _write(self, call: Call, code: str, elapsed: float, moment: float) -> None:
        trace = call.trace
        self._log.info(
            "call",
            ts=datetime.fromtimestamp(moment, UTC),
            trace_id=trace.trace_id,
            method=call.method,
            code=code,
            ms=round(elapsed * 1000, 3),
            deadline_ms=None if call.offered is None else round(call.offered * 1000, 3),
            peer=call.peer,
            subject=call.identity.subject if call.identity else "",
            span_id=trace.span_id,
            parent_id=trace.parent_id,
            request_id=call.request_id,
        )


class Telemetry:
    """Observes every call from the outside."""

    def __init__(self, log: Log, tracing: Tracing) -> None:
        self._book, self._tracing = CallBook(log), tracing
        self.tell = self._book.tell

    @staticmethod
    def begin(method: str, context: Any, sample_ratio: float) -> Call:
        """Make the call that the rest of the chain fills in."""
        metadata = dict(_ARRIVED.get() or context.invocation_metadata() or ())
        heard = HeardTrace(metadata.get("traceparent"), metadata.get("tracestate", ""), sample_ratio)
        call = Call(method, heard, token=metadata.get("authorization", ""))
        sent = metadata.get("x-request-id")
        if sent:
            call.request_id = _request_id(sent)
        call.offered = remaining = context.time_remaining()
        if remaining is not None:
            call.deadline = call.started + remaining
        return call

    def enter(self, call: Call, context: Any) -> None:
        self._book.began(call)
        call.span = self._tracing.server_span(call)

    def leave(self, call: Call, context: Any, error: BaseException | None) -> BaseException | None:
        name = (
            "OK" if error is None else _status_name(context) if isinstance(error, grpc.aio.AbortError) else "CANCELLED"
        )
        self._tracing.end(call.span, name)
        self._book.ended(call, name)
        return error


def _request_id(sent: str | bytes) -> str:
    """What a caller calls its request goes into logs and on to peers: a UUID as it is, anything else without what it gives away."""
    name = str(sent)[:128]
    if not name or (len(name) == 36 and name[8] == name[13] == name[18] == name[23] == "-"):
        return name
    from libs.common.redaction.scanner import Scanner

    return str(Scanner().text(name).value)


def _status_name(context: Any) -> str:
    code = context.code()
    return code.name if isinstance(code, grpc.StatusCode) else _NAMES.get(code, "UNKNOWN")
