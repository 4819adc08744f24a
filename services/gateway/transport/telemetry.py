"""Counts, times and logs every call, under the same names as the chain of the gRPC services.

What is to be told about calls is gathered for a moment and told together, as that chain does: no caller waits for it.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any, NamedTuple

import grpc

from libs.common.errors import MeshError
from libs.common.rpc.call import Call
from libs.common.rpc.telemetry import GATHER_SECONDS, Meters
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing

_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}
CANCELED = "CANCELLED"


class _Ended(NamedTuple):
    """A call that is over, and when."""

    call: Call
    code: str
    elapsed: float
    moment: float


class Telemetry:
    """Observes calls from the outside."""

    def __init__(self, log: Log, tracing: Tracing) -> None:
        self._log, self._tracing = log, tracing
        self._meters: dict[str, Meters] = {}
        self._ended: list[_Ended] = []

    def begin(self, call: Call) -> Any:
        """Note that a call began; returns its span, None when it is not sampled."""
        meters = self._meters.get(call.method) or self._meters.setdefault(call.method, Meters(call.method))
        meters.in_flight.inc()
        return self._tracing.server_span(call)

    def end(self, call: Call, span: Any, code: str) -> None:
        """Note how a call ended."""
        self._tracing.end(span, code)
        if not self._ended:
            asyncio.get_running_loop().call_later(GATHER_SECONDS, self.tell)
        self._ended.append(_Ended(call, code, time.monotonic() - call.started, time.time()))

    def tell(self) -> None:
        """Count every call that has ended, and write its one line. The token is never in it."""
        ended, self._ended = self._ended, []
        for call, code, elapsed, _ in ended:
            self._meters[call.method].ended(code, elapsed)
        for one in ended:
            self._write(*one)

    def _write(self, call: Call, code: str, elapsed: float, moment: float) -> None:
        self._log.info(
            "call",
            ts=datetime.fromtimestamp(moment, UTC),
            trace_id=call.trace.trace_id,
            method=call.method,
            code=code,
            ms=round(elapsed * 1000, 3),
            deadline_ms=None if call.deadline is None else round((call.deadline - call.started) * 1000, 3),
            peer=call.peer,
            span_id=call.trace.span_id,
            parent_id=call.trace.parent_id,
            request_id=call.request_id,
        )


def code_of(error: MeshError | None) -> str:
    """Return the name of the gRPC status that the outcome corresponds to."""
    return "OK" if error is None else _NAMES[error.row.grpc_status]
