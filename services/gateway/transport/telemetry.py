"""Counts, times and logs every call, under the same names as the chain of the gRPC services."""

from __future__ import annotations

import time
from typing import Any

import grpc

from libs.common.errors import MeshError
from libs.common.rpc.call import Call
from libs.common.telemetry.log import Log
from libs.common.telemetry.metrics import call_seconds, calls_in_flight, calls_total
from libs.common.telemetry.spans import Tracing

_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}
CANCELED = "CANCELLED"


class Telemetry:
    """Observes calls from the outside. The children of each metric are kept: to look them up costs more than to count."""

    def __init__(self, log: Log, tracing: Tracing) -> None:
        self._log, self._tracing = log, tracing
        self._in_flight: dict[str, Any] = {}
        self._seconds: dict[str, Any] = {}
        self._total: dict[tuple[str, str], Any] = {}

    def begin(self, call: Call) -> Any:
        """Note that a call began; returns its span, None when it is not sampled."""
        gauge = self._in_flight.get(call.method)
        if gauge is None:
            gauge = self._in_flight[call.method] = calls_in_flight.labels(call.method)
        gauge.inc()
        return self._tracing.server_span(call)

    def end(self, call: Call, span: Any, code: str) -> None:
        """Note how a call ended, and write its one line. The token is never in it."""
        elapsed = time.monotonic() - call.started
        self._in_flight[call.method].dec()
        self._count(call.method, code, elapsed)
        self._tracing.end(span, code)
        offered = None if call.deadline is None else round((call.deadline - call.started) * 1000, 3)
        self._log.info(
            "call",
            method=call.method,
            code=code,
            ms=round(elapsed * 1000, 3),
            deadline_ms=offered,
            peer=call.peer,
            span_id=call.trace.span_id,
            parent_id=call.trace.parent_id,
            request_id=call.request_id,
        )

    def _count(self, method: str, code: str, elapsed: float) -> None:
        total = self._total.get((method, code))
        if total is None:
            total = self._total[method, code] = calls_total.labels(method, code)
        total.inc()
        seconds = self._seconds.get(method)
        if seconds is None:
            seconds = self._seconds[method] = call_seconds.labels(method)
        seconds.observe(elapsed)


def code_of(error: MeshError | None) -> str:
    """Return the name of the gRPC status that the outcome corresponds to."""
    return "OK" if error is None else _NAMES[error.row.grpc_status]
