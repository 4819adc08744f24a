"""The endpoint `POST /rpc`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from libs.common.call_context import Call, enter
from libs.common.errors import MeshError, Reason
from services.gateway.domain.dispatch import dispatch, interrupted_responses, refused_responses
from services.gateway.domain.model import Entry, Message, Response
from services.gateway.domain.parse import MAX_BYTES, parse
from services.gateway.transport.asgi_types import DisconnectedError, Header, Receive, Scope, Send
from services.gateway.transport.body import read_body
from services.gateway.transport.call_pipeline import CallPipeline, begin_call, begin_entry_call
from services.gateway.transport.disconnect import while_connected
from services.gateway.transport.dpop_check import DpopCheck
from services.gateway.transport.in_flight import InFlightRequests
from services.gateway.transport.reply import Reply, correlation_headers, refusal, respond, rpc_reply, with_status_of
from services.gateway.transport.request_headers import RequestHead, is_json, read_head, read_headers

# Larger bodies are parsed beside the event loop.
INLINE_BYTES = 64 * 1024
# As much as the edge lets in without a token.
MAX_STRANGER_BYTES = 16 * 1024


class RpcEndpoint:
    """Serves JSON-RPC 2.0 over HTTP."""

    def __init__(
        self, calls: CallPipeline, in_flight: InFlightRequests, dpop_check: DpopCheck, sample_ratio: float
    ) -> None:
        self._calls, self._in_flight, self._sample_ratio = calls, in_flight, sample_ratio
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
                reply = await self._reply(scope, headers, head, call, receive)
                await respond(send, reply, *self._headers(head))
        except DisconnectedError:
            return
        except MeshError as error:
            await respond(send, self._refused(call, error), *self._headers(head))

    async def _reply(
        self, scope: Scope, headers: Mapping[bytes, bytes], head: RequestHead, call: Call, receive: Receive
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
        work = self._batch(message, head) if message.batch else self._single(message, call, head)
        try:
            responses = await while_connected(scope["state"]["disconnect"], work)
        except asyncio.CancelledError:
            # The client is still connected, so the process is ending.
            responses = interrupted_responses(message.entries)
        return rpc_reply(responses, batch=message.batch, trace_id=head.trace.trace_id)

    async def _refused_by_edge(
        self, error: MeshError, headers: Mapping[bytes, bytes], head: RequestHead, call: Call, receive: Receive
    ) -> Reply:
        """Answer for the edge, which did not accept the token. Nothing is run, and nothing but ids is read."""
        try:
            message = parse(await read_body(receive, headers, MAX_STRANGER_BYTES, head.deadline_ms))
        except MeshError:
            return self._refused(call, error)
        self._calls.record_refusal(call, error)
        responses = refused_responses(message.entries, error)
        return with_status_of(rpc_reply(responses, batch=message.batch, trace_id=head.trace.trace_id), error)

    async def _single(self, message: Message, call: Call, head: RequestHead) -> list[Response]:
        response = await self._calls.run(message.entries[0], call, head)
        return [] if response is None else [response]

    async def _batch(self, message: Message, head: RequestHead) -> list[Response]:
        async def run(entry: Entry) -> Response | None:
            call = begin_entry_call(head)
            enter(call)
            return await self._calls.run(entry, call, head)

        return await dispatch(message.entries, run)

    def _refused(self, call: Call, error: MeshError, **reply: Any) -> Reply:
        self._calls.record_refusal(call, error)
        return refusal(error, call.trace.trace_id, **reply)

    def _headers(self, head: RequestHead) -> list[Header]:
        return [*correlation_headers(head), *self._in_flight.close_headers()]


async def _parse(body: bytes) -> Message:
    return parse(body) if len(body) <= INLINE_BYTES else await asyncio.to_thread(parse, body)
