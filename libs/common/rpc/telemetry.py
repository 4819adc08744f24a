"""First stage: continues the trace, counts and times the call, and writes its one log line."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from libs.common.rpc.call import Call, enter
from libs.common.telemetry.log import Log
from libs.common.telemetry.metrics import call_seconds, calls_in_flight, calls_total
from libs.common.telemetry.spans import Tracing
from libs.common.telemetry.trace import continue_trace

_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}
_QUIET = ("/grpc.health.", "/grpc.reflection.")


class Telemetry:
    """Observes every call from the outside."""

    def __init__(self, log: Log, tracing: Tracing) -> None:
        self._log, self._tracing = log, tracing

    @staticmethod
    def begin(method: str, context: Any, sample_ratio: float) -> Call:
        """Make the call that the rest of the chain fills in."""
        metadata = dict(context.invocation_metadata() or ())
        trace = continue_trace(metadata.get("traceparent"), metadata.get("tracestate", ""), sample_ratio=sample_ratio)
        authorization = metadata.get("authorization", "")
        call = Call(method, trace, token=authorization, request_id=str(metadata.get("x-request-id", ""))[:128])
        remaining = context.time_remaining()
        if remaining is not None:
            call.deadline = call.started + remaining
        return call

    @asynccontextmanager
    async def around(self, call: Call, context: Any) -> AsyncIterator[None]:
        enter(call)
        offered = call.remaining()
        calls_in_flight.labels(call.method).inc()
        span = self._tracing.server_span(call)
        name = "CANCELLED"
        try:
            yield
            name = "OK"
        except grpc.aio.AbortError:
            name = _status_name(context)
            raise
        finally:
            elapsed = time.monotonic() - call.started
            calls_in_flight.labels(call.method).dec()
            calls_total.labels(call.method, name).inc()
            call_seconds.labels(call.method).observe(elapsed)
            self._tracing.end(span, name)
            if not call.method.startswith(_QUIET):
                self._write(call, name, elapsed, offered)

    def _write(self, call: Call, code: str, elapsed: float, offered: float | None) -> None:
        self._log.info(
            "call",
            method=call.method,
            code=code,
            ms=round(elapsed * 1000, 3),
            deadline_ms=None if offered is None else round(offered * 1000, 3),
            peer=call.peer,
            subject=call.identity.subject if call.identity else "",
            span_id=call.trace.span_id,
            parent_id=call.trace.parent_id,
            request_id=call.request_id,
        )


def _status_name(context: Any) -> str:
    code = context.code()
    return code.name if isinstance(code, grpc.StatusCode) else _NAMES.get(code, "UNKNOWN")
