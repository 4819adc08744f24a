"""Counts, times and logs every call, with the metrics and log lines of the gRPC services."""

from __future__ import annotations

from typing import Any

import grpc

from libs.common.call_context import Call
from libs.common.errors import MeshError
from libs.common.rpc.telemetry import AccessLog, MethodMetrics
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing

_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}
CANCELED = "CANCELLED"


class Telemetry:
    """Records every call."""

    def __init__(self, log: Log, tracing: Tracing) -> None:
        self._access_log, self._tracing = AccessLog(log), tracing
        self._metrics: dict[str, MethodMetrics] = {}
        self.flush = self._access_log.flush

    def begin(self, call: Call) -> Any:
        """Record the start of a call; return its span, None when it is not sampled."""
        metrics = self._metrics.get(call.method) or self._metrics.setdefault(call.method, MethodMetrics(call.method))
        metrics.in_flight.inc()
        return self._tracing.server_span(call)

    def end(self, call: Call, span: Any, code: str) -> None:
        """Record the end of a call."""
        self._tracing.end(span, code)
        # Known only now: the time limit depends on the method and its parameters.
        call.offered = None if call.deadline is None else call.deadline - call.started
        self._access_log.record(self._metrics[call.method], call, code)


def code_of(error: MeshError | None) -> str:
    """Return the name of the gRPC status that the outcome corresponds to."""
    return "OK" if error is None else _NAMES[error.row.grpc_status]
