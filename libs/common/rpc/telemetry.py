"""First stage: continues the trace, counts and times the call, and writes its one log line."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import grpc.aio
from prometheus_client import Counter

from libs.common.rpc.call import Call
from libs.common.telemetry.log import Log
from libs.common.telemetry.metrics import call_seconds, calls_in_flight, calls_total
from libs.common.telemetry.spans import Tracing
from libs.common.telemetry.trace import continue_trace

_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}
_QUIET = ("/grpc.health.", "/grpc.reflection.")


class Meters:
    """The metrics of one method, looked up once: finding a labelled metric costs more than counting with it."""

    def __init__(self, method: str) -> None:
        self.in_flight = calls_in_flight.labels(method)
        self._method, self._seconds = method, call_seconds.labels(method)
        self._totals: dict[str, Counter] = {}

    def ended(self, code: str, elapsed: float) -> None:
        """Count a call that is over."""
        self.in_flight.dec()
        self._seconds.observe(elapsed)
        total = self._totals.get(code)
        if total is None:
            total = self._totals[code] = calls_total.labels(self._method, code)
        total.inc()


class Telemetry:
    """Observes every call from the outside."""

    def __init__(self, log: Log, tracing: Tracing) -> None:
        self._log, self._tracing = log, tracing
        self._meters: dict[str, Meters] = {}

    @staticmethod
    def begin(method: str, context: Any, sample_ratio: float) -> Call:
        """Make the call that the rest of the chain fills in."""
        metadata = dict(context.invocation_metadata() or ())
        trace = continue_trace(metadata.get("traceparent"), metadata.get("tracestate", ""), sample_ratio=sample_ratio)
        authorization = metadata.get("authorization", "")
        call = Call(method, trace, token=authorization, request_id=_request_id(metadata.get("x-request-id", "")))
        remaining = context.time_remaining()
        if remaining is not None:
            call.deadline = call.started + remaining
        return call

    async def enter(self, call: Call, context: Any) -> None:
        meters = self._meters.get(call.method) or self._meters.setdefault(call.method, Meters(call.method))
        meters.in_flight.inc()
        call.span = self._tracing.server_span(call)
        call.offered = call.remaining()

    async def leave(self, call: Call, context: Any, error: BaseException | None) -> BaseException | None:
        name = (
            "OK" if error is None else _status_name(context) if isinstance(error, grpc.aio.AbortError) else "CANCELLED"
        )
        # Told after the answer is on its way: the caller need not wait for what is said about its call.
        asyncio.get_running_loop().call_soon(self._ended, call, name, time.monotonic() - call.started)
        return error

    def _ended(self, call: Call, name: str, elapsed: float) -> None:
        self._meters[call.method].ended(name, elapsed)
        self._tracing.end(call.span, name)
        if not call.method.startswith(_QUIET):
            self._write(call, name, elapsed)

    def _write(self, call: Call, code: str, elapsed: float) -> None:
        self._log.info(
            "call",
            method=call.method,
            code=code,
            ms=round(elapsed * 1000, 3),
            deadline_ms=None if call.offered is None else round(call.offered * 1000, 3),
            peer=call.peer,
            subject=call.identity.subject if call.identity else "",
            span_id=call.trace.span_id,
            parent_id=call.trace.parent_id,
            request_id=call.request_id,
        )


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
