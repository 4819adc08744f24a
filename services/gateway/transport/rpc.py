"""The endpoint `POST /rpc`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from libs.common.call_context import Call, enter
from libs.common.errors import MeshError, Reason, Violation
from services.gateway.domain.dispatch import dispatch, interrupted_responses, refused_responses
from services.gateway.domain.model import Entry, Message, Response
from services.gateway.domain.parse import MAX_BYTES, parse
from services.gateway.domain.rate_limits import BATCHED_CALLS
from services.gateway.handlers import Handler
from services.gateway.streaming.event_ids import HEADER as LAST_EVENT_ID
from services.gateway.streaming.streamed_call import StreamedCalls
from services.gateway.transport.asgi_types import DisconnectedError, Header, Receive, Scope, Send
from services.gateway.transport.call_pipeline import CallPipeline, begin_call, begin_entry_call
from services.gateway.transport.deprecation_headers import deprecation_headers
from services.gateway.transport.disconnect import while_connected
from services.gateway.transport.edge_log import EdgeLog
from services.gateway.transport.in_flight import InFlightRequests
from services.gateway.transport.reply import Reply, correlation_headers, refusal, respond, rpc_reply, with_status_of
from services.gateway.transport.request.body import read_body
from services.gateway.transport.request.dpop_check import DpopCheck
from services.gateway.transport.request.headers import RequestHead, accepts_events, is_json, read_head, read_headers
from services.gateway.transport.request.limits import RequestLimits
from services.gateway.transport.response_stream import ResponseStream

BATCH = "rpc/batch"
# Larger bodies are parsed beside the event loop.
INLINE_BYTES = 64 * 1024
# As much as the edge lets in without a token.
MAX_STRANGER_BYTES = 16 * 1024


class RpcEndpoint:
    """Serves JSON-RPC 2.0 over HTTP."""

    def __init__(
        self,
        calls: CallPipeline,
        streamed: StreamedCalls,
        in_flight: InFlightRequests,
        dpop_check: DpopCheck,
        edge_log: EdgeLog,
        limits: RequestLimits,
        sample_ratio: float,
    ) -> None:
        self._edge_log, self._limits = edge_log, limits
        self._calls, self._streamed, self._in_flight, self._sample_ratio = calls, streamed, in_flight, sample_ratio
        self._dpop_check = dpop_check

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = read_headers(scope)
        head = read_head(scope, headers, self._sample_ratio)
        if head.token and head.refusal is None:
            head.refusal = self._dpop_check.check(scope, headers, head.token)
        call = begin_call(head)
        enter(call)
        try:
            with self._in_flight:
                stream = ResponseStream(send, partial(self._headers, head, call))
                reply = await self._reply(scope, headers, head, call, receive, stream)
                if stream.opened:
                    await stream.finish(reply.body)
                else:
                    await respond(send, reply, *self._headers(head, call))
        except DisconnectedError:
            return
        except MeshError as error:
            await respond(send, self._refused(call, error), *self._headers(head, call))

    async def _reply(
        self,
        scope: Scope,
        headers: Mapping[bytes, bytes],
        head: RequestHead,
        call: Call,
        receive: Receive,
        stream: ResponseStream,
    ) -> Reply:
        if head.refused_by_edge and head.refusal is not None:
            return await self._refused_by_edge(head.refusal, headers, head, call, receive)
        if scope["method"] != "POST":
            error = MeshError(Reason.INVALID_REQUEST, message="JSON-RPC is called with POST")
            return self._refused(call, error, status=405, headers=[(b"allow", b"POST")])
        if not is_json(headers):
            error = MeshError(Reason.INVALID_REQUEST, message="the body must be application/json in UTF-8")
            return self._refused(call, error, status=415)
        try:
            message = await _parse(await read_body(receive, headers, MAX_BYTES, head.deadline_ms))
        except asyncio.CancelledError:
            return self._refused(call, MeshError(Reason.SERVICE_UNAVAILABLE))
        except MeshError as error:
            return self._refused(call, error, status=413 if error.reason is Reason.PAYLOAD_TOO_LARGE else None)
        if message.batch and head.idempotency_key:
            head.refusal = head.refusal or _key_of_a_batch()
        if message.batch and head.refusal is None:
            try:
                self._limits.take(head.token, BATCHED_CALLS, len(message.entries))
            except MeshError as error:
                return self._refused_message(error, message, call)
        handlers = self._with_events(headers, stream) if accepts_events(headers) else None
        work = self._batch(message, head, call) if message.batch else self._single(message, call, head, handlers)
        try:
            responses = await while_connected(scope["state"]["disconnect"], work)
        except asyncio.CancelledError:
            # The client is still connected, so the process is ending.
            if stream.opened:
                # Another replica goes on with the stream.
                raise DisconnectedError from None
            responses = interrupted_responses(message.entries)
        reply = rpc_reply(responses, batch=message.batch, trace_id=head.trace.trace_id)
        # A batch has results of several versions, each with its own notice.
        notices = deprecation_headers(responses[0].result) if responses and not message.batch else []
        return reply._replace(headers=[*reply.headers, *notices]) if notices else reply

    async def _refused_by_edge(
        self, error: MeshError, headers: Mapping[bytes, bytes], head: RequestHead, call: Call, receive: Receive
    ) -> Reply:
        """Answer for the edge, which did not accept the token. Nothing is run, and nothing but ids is read."""
        try:
            message = parse(await read_body(receive, headers, MAX_STRANGER_BYTES, head.deadline_ms))
        except MeshError:
            return self._refused(call, error)
        return self._refused_message(error, message, call)

    def _refused_message(self, error: MeshError, message: Message, call: Call) -> Reply:
        """Answer each call of a message with the same error, which is also the status of the whole."""
        self._calls.record_refusal(call, error)
        responses = refused_responses(message.entries, error)
        return with_status_of(rpc_reply(responses, batch=message.batch, trace_id=call.trace.trace_id), error)

    def _with_events(self, headers: Mapping[bytes, bytes], stream: ResponseStream) -> Mapping[str, Handler]:
        """Return the handlers of a request whose client takes events."""
        last_event_id = headers.get(LAST_EVENT_ID.encode(), b"").decode("latin-1")

        async def invoke(params: dict[str, Any]) -> Any:
            return await self._streamed.invoke(params, stream, last_event_id)

        return {"tools.invoke": invoke}

    async def _single(
        self, message: Message, call: Call, head: RequestHead, handlers: Mapping[str, Handler] | None
    ) -> list[Response]:
        response = await self._calls.run(message.entries[0], call, head, handlers)
        return [] if response is None else [response]

    async def _batch(self, message: Message, head: RequestHead, whole: Call) -> list[Response]:
        whole.method = BATCH

        async def run(entry: Entry) -> Response | None:
            call = begin_entry_call(head)
            enter(call)
            return await self._calls.run(entry, call, head)

        return await dispatch(message.entries, run)

    def _refused(self, call: Call, error: MeshError, **reply: Any) -> Reply:
        self._calls.record_refusal(call, error)
        return refusal(error, call.trace.trace_id, **reply)

    def _headers(self, head: RequestHead, call: Call) -> list[Header]:
        return [*correlation_headers(head), *self._edge_log.headers(call), *self._in_flight.close_headers()]


def _key_of_a_batch() -> MeshError:
    rule = "names one call; in a batch, each call has the parameter idempotency_key"
    return MeshError(Reason.INVALID_REQUEST, violations=[Violation("idempotency-key", "single", rule)])


async def _parse(body: bytes) -> Message:
    return parse(body) if len(body) <= INLINE_BYTES else await asyncio.to_thread(parse, body)
