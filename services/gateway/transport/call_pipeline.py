"""What happens around every call, whichever method it is: telemetry, failures, the method's row, parameters, deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import grpc.aio

from libs.common.call_context import Call
from libs.common.errors import MeshError, Reason
from libs.common.ids import new_span_id
from libs.common.rpc.status import DETAILS_KEY, from_rpc_error
from libs.common.telemetry.log import Log
from services.gateway.contract import Method, Parameters
from services.gateway.domain.deadline import allowed_seconds
from services.gateway.domain.errors import unknown_method
from services.gateway.domain.model import Answer, Entry, Request, Unusable
from services.gateway.handlers import Handler
from services.gateway.policy import Row
from services.gateway.transport.request_headers import Arrival
from services.gateway.transport.telemetry import CANCELED, Telemetry, code_of

# Names that callers invent share one label, so that nobody can fill the metrics.
UNKNOWN, MALFORMED = "rpc/unknown", "rpc/malformed"


class Calls:
    """Runs entries. Whatever goes wrong becomes the answer; what nobody foresaw becomes INTERNAL, its cause only logged."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        methods: tuple[Method, ...],
        policy: Mapping[str, Row],
        log: Log,
        telemetry: Telemetry,
    ) -> None:
        self._routes = {
            method.name: _Route(method, handlers[method.name], policy[method.name])
            for method in methods
            # Deny by omission: a method without a row is unknown.
            if method.name in policy
        }
        self._log, self._telemetry = log, telemetry

    async def answer(self, entry: Entry, call: Call, arrival: Arrival) -> Answer | None:
        """Return the answer of an entry, None for a notification. The call is the one that the running task serves."""
        route = None if isinstance(entry, Unusable) else self._routes.get(entry.method)
        call.method = _label(entry, route)
        span = self._telemetry.begin(call)
        code = CANCELED
        try:
            answer = await self._outcome(entry, route, call, arrival)
            code = code_of(answer.error)
        finally:
            self._telemetry.end(call, span, code)
        return None if isinstance(entry, Request) and entry.notification else answer

    def refused(self, call: Call, error: MeshError) -> None:
        """Note a request that never became a call."""
        call.method = MALFORMED
        self._telemetry.end(call, self._telemetry.begin(call), code_of(error))

    async def _outcome(self, entry: Entry, route: _Route | None, call: Call, arrival: Arrival) -> Answer:
        if isinstance(entry, Unusable):
            return Answer(entry.id, error=entry.error)
        try:
            if route is None:
                raise unknown_method()
            return Answer(entry.id, await route.run(entry, call, arrival))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            return Answer(entry.id, error=self._failure(call, error))

    def _failure(self, call: Call, error: Exception) -> MeshError:
        if isinstance(error, MeshError):
            return error
        if isinstance(error, grpc.aio.AioRpcError):
            return _failed_call(error)
        self._log.error("unforeseen", method=call.method, cause=error)
        return MeshError(Reason.INTERNAL)


class _Route:
    """One method: its parameters, its row, its handler."""

    def __init__(self, method: Method, handler: Handler, row: Row) -> None:
        self.label = f"rpc/{method.name}"
        self._parameters, self._handler, self._row = Parameters(method), handler, row

    async def run(self, request: Request, call: Call, arrival: Arrival) -> Any:
        if arrival.refusal is not None:
            raise arrival.refusal
        params = self._parameters.check(request.params)
        call.deadline = arrival.started + allowed_seconds(
            arrival.deadline_ms, params.get("timeout_ms"), self._row.deadline
        )
        if call.deadline <= time.monotonic():
            raise MeshError(Reason.DEADLINE_EXCEEDED)
        return await self._handler(params)


def begin_call(arrival: Arrival) -> Call:
    """Make the call of a request."""
    return Call(
        method="rpc",
        trace=arrival.trace,
        peer=arrival.peer,
        token=arrival.token,
        started=arrival.started,
        request_id=arrival.request_id,
    )


def entry_call(arrival: Arrival) -> Call:
    """Make the call of one entry of a batch: the same trace and token, a span of its own."""
    call = begin_call(arrival)
    call.trace = arrival.trace._replace(span_id=new_span_id())
    call.started = time.monotonic()
    return call


def _failed_call(error: grpc.aio.AioRpcError) -> MeshError:
    """Return the error of a peer. Without one of its own the peer was lost in the middle of the call, which then may have run."""
    found = from_rpc_error(error)
    if all(key != DETAILS_KEY for key, _ in error.trailing_metadata() or ()):
        found.metadata["outcome"] = "unknown"
    return found


def _label(entry: Entry, route: _Route | None) -> str:
    if isinstance(entry, Unusable):
        return MALFORMED
    return UNKNOWN if route is None else route.label
