"""The steps around every JSON-RPC call: telemetry, error mapping, policy row, parameters, deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import grpc.aio

from libs.common.call_context import Call
from libs.common.deadline_header import allowed_seconds
from libs.common.errors import MeshError, Reason, Violation
from libs.common.ids import new_span_id
from libs.common.redaction.request_ids import shown_request_id
from libs.common.rpc.status import DETAILS_KEY, from_rpc_error
from libs.common.telemetry.log import Log
from services.gateway.contract import Parameters
from services.gateway.domain.errors import unknown_method
from services.gateway.domain.model import Entry, InvalidEntry, Request, Response
from services.gateway.handlers import Handler
from services.gateway.method import Method, Row
from services.gateway.transport.asgi_types import DisconnectedError
from services.gateway.transport.request.headers import RequestHead
from services.gateway.transport.request.limits import RequestLimits
from services.gateway.transport.telemetry import CANCELED, Telemetry, code_of

# Unknown names share one label, so that callers cannot fill the metrics.
UNKNOWN, MALFORMED = "rpc/unknown", "rpc/malformed"
KEY = "idempotency_key"


class CallPipeline:
    """Runs entries. Every failure becomes a response; an unexpected one becomes INTERNAL, its cause only logged."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        methods: tuple[Method, ...],
        policy: Mapping[str, Row],
        log: Log,
        telemetry: Telemetry,
        limits: RequestLimits,
    ) -> None:
        self._routes = {
            method.name: _Route(method, handlers[method.name], policy[method.name], limits)
            for method in methods
            # Deny by omission: a method without a row is unknown.
            if method.name in policy
        }
        self._log, self._telemetry = log, telemetry

    async def run(
        self, entry: Entry, call: Call, head: RequestHead, handlers: Mapping[str, Handler] | None = None
    ) -> Response | None:
        """Return the response of an entry, None for a notification. `call` is the current call of the running task.

        `handlers` take the place of those of the table, for this entry.
        """
        route = None if isinstance(entry, InvalidEntry) else self._routes.get(entry.method)
        call.method = _label(entry, route)
        span = self._telemetry.begin(call)
        code = CANCELED
        try:
            response = await self._outcome(entry, route, call, head, handlers or {})
            code = code_of(response.error)
        finally:
            self._telemetry.end(call, span, code)
        return None if isinstance(entry, Request) and entry.notification else response

    def record_refusal(self, call: Call, error: MeshError) -> None:
        """Record a request that never became a call."""
        call.method = MALFORMED
        self._telemetry.end(call, self._telemetry.begin(call), code_of(error))

    async def _outcome(
        self, entry: Entry, route: _Route | None, call: Call, head: RequestHead, handlers: Mapping[str, Handler]
    ) -> Response:
        if isinstance(entry, InvalidEntry):
            return Response(entry.id, error=entry.error)
        try:
            if route is None:
                raise unknown_method()
            return Response(entry.id, await route.run(entry, call, head, handlers.get(entry.method)))
        except (asyncio.CancelledError, DisconnectedError):
            raise
        except Exception as error:
            return Response(entry.id, error=self._failure(call, error))

    def _failure(self, call: Call, error: Exception) -> MeshError:
        if isinstance(error, MeshError):
            return error
        if isinstance(error, grpc.aio.AioRpcError):
            return peer_error(error)
        self._log.error("unexpected error", method=call.method, cause=error)
        return MeshError(Reason.INTERNAL)


class _Route:
    """One method: its parameters, its row, its handler."""

    def __init__(self, method: Method, handler: Handler, row: Row, limits: RequestLimits) -> None:
        self.label = f"rpc/{method.name}"
        self._parameters, self._handler, self._row, self._limits = Parameters(method), handler, row, limits
        self._takes_key = any(param.name == KEY for param in method.params)

    async def run(self, request: Request, call: Call, head: RequestHead, handler: Handler | None) -> Any:
        if head.refusal is not None:
            raise head.refusal
        params = self._parameters.check(request.params)
        if self._row.rate is not None:
            count = len(params[self._row.counted_by]) if self._row.counted_by else 1
            self._limits.take(head.token, self._row.rate, count)
        if head.idempotency_key and self._takes_key:
            params = _with_key(params, head.idempotency_key)
        call.deadline = head.started + allowed_seconds(head.deadline_ms, params.get("timeout_ms"), self._row.deadline)
        if call.deadline <= time.monotonic():
            raise MeshError(Reason.DEADLINE_EXCEEDED)
        return await (handler or self._handler)(params)


def _with_key(params: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the parameters with the key of the header. Raises INVALID_REQUEST where they have another one."""
    if params.get(KEY, key) != key:
        violation = Violation("idempotency-key", "conflict", "differs from the parameter idempotency_key; send one")
        raise MeshError(Reason.INVALID_REQUEST, violations=[violation])
    return {**params, KEY: key}


def begin_call(head: RequestHead) -> Call:
    """Make the call of a request."""
    return Call(
        method="rpc",
        trace=head.trace,
        peer=head.peer,
        token=head.token,
        started=head.started,
        request_id=shown_request_id(head.request_id),
    )


def begin_entry_call(head: RequestHead) -> Call:
    """Make the call of one entry of a batch: the same trace and token, a span of its own."""
    call = begin_call(head)
    call.trace = head.trace._replace(span_id=new_span_id())
    call.started = time.monotonic()
    return call


def peer_error(error: grpc.aio.AioRpcError) -> MeshError:
    """Return the error of a peer. Without an envelope the peer was lost during the call, which may have run."""
    mapped = from_rpc_error(error)
    if all(key != DETAILS_KEY for key, _ in error.trailing_metadata() or ()):
        mapped.metadata["outcome"] = "unknown"
    return mapped


def _label(entry: Entry, route: _Route | None) -> str:
    if isinstance(entry, InvalidEntry):
        return MALFORMED
    return UNKNOWN if route is None else route.label
