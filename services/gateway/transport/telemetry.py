"""Counts, times and logs every call, in the same book as the chain of the gRPC services."""

from __future__ import annotations

from typing import Any

import grpc

from libs.common.call_context import Call
from libs.common.errors import MeshError
from libs.common.rpc.telemetry import AccessLog, Meters
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing

_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}
CANCELED = "CANCELLED"


class Telemetry:
    """Observes calls from the outside."""

    def __init__(self, log: Log, tracing: Tracing) -> None:
        self._book, self._tracing = AccessLog(log), tracing
        self._meters: dict[str, Meters] = {}
        self.tell = self._book.tell

    def begin(self, call: Call) -> Any:
        """Note that a call began; returns its span, None when it is not sampled."""
        meters = self._meters.get(call.method) or self._meters.setdefault(call.method, Meters(call.method))
        meters.in_flight.inc()
        return self._tracing.server_span(call)

    def end(self, call: Call, span: Any, code: str) -> None:
        """Note how a call ended."""
        self._tracing.end(span, code)
        # Known only now: what a call may take depends on what it asks for.
        call.offered = None if call.deadline is None else call.deadline - call.started
        self._book.ended(self._meters[call.method], call, code)


def code_of(error: MeshError | None) -> str:
    """Return the name of the gRPC status that the outcome corresponds to."""
    return "OK" if error is None else _NAMES[error.row.grpc_status]
