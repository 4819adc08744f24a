"""`POST /rpc`: from a body to an answer, for as long as the client stays."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from libs.common.call_context import Call, enter
from libs.common.errors import MeshError, Reason
from services.gateway.domain.dispatch import dispatch, unfinished
from services.gateway.domain.model import Answer, Entry, Message
from services.gateway.domain.parse import MAX_BYTES, parse
from services.gateway.transport.asgi_types import DisconnectedError, Header, Receive, Scope, Send
from services.gateway.transport.body import read_body
from services.gateway.transport.call_pipeline import Calls, begin_call, entry_call
from services.gateway.transport.disconnect import while_connected
from services.gateway.transport.dpop_check import HolderCheck
from services.gateway.transport.load import Load
from services.gateway.transport.reply import Reply, marks_of, refusal, reply_to, respond
from services.gateway.transport.request_headers import Arrival, is_json, read_arrival, read_headers


class RpcEndpoint:
    """Answers JSON-RPC 2.0 over HTTP."""

    def __init__(self, calls: Calls, load: Load, sample_ratio: float) -> None:
        self._calls, self._load, self._sample_ratio = calls, load, sample_ratio
        self._prove = HolderCheck()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = read_headers(scope)
        arrival = read_arrival(scope, headers, self._sample_ratio)
        if arrival.token and arrival.refusal is None:
            arrival.refusal = self._prove(scope, headers, arrival.token)
        call = begin_call(arrival)
        enter(call)
        try:
            with self._load:
                reply = await self._reply(scope, headers, arrival, call, receive)
                await respond(send, reply, *self._marks(arrival))
        except DisconnectedError:
            return
        except MeshError as error:
            await respond(send, self._refused(call, error), *self._marks(arrival))

    async def _reply(
        self, scope: Scope, headers: Mapping[bytes, bytes], arrival: Arrival, call: Call, receive: Receive
    ) -> Reply:
        if scope["method"] != "POST":
            error = MeshError(Reason.INVALID_REQUEST, message="JSON-RPC is called with POST")
            return self._refused(call, error, status=405, headers=[(b"allow", b"POST")])
        if not is_json(headers):
            error = MeshError(Reason.INVALID_REQUEST, message="the body must be application/json in UTF-8")
            return self._refused(call, error, status=415)
        try:
            message = parse(await read_body(receive, headers, MAX_BYTES, arrival.deadline_ms))
        except asyncio.CancelledError:
            return self._refused(call, MeshError(Reason.SERVICE_UNAVAILABLE))
        except MeshError as error:
            return self._refused(call, error, status=413 if error.reason is Reason.PAYLOAD_TOO_LARGE else None)
        work = self._batch(message, arrival) if message.batch else self._single(message, call, arrival)
        try:
            answers = await while_connected(scope["state"]["presence"], work)
        except asyncio.CancelledError:
            # The client is still there, so it is the process that ends; whoever waits is told.
            answers = unfinished(message.entries)
        return reply_to(answers, batch=message.batch, trace_id=arrival.trace.trace_id)

    async def _single(self, message: Message, call: Call, arrival: Arrival) -> list[Answer]:
        answer = await self._calls.answer(message.entries[0], call, arrival)
        return [] if answer is None else [answer]

    async def _batch(self, message: Message, arrival: Arrival) -> list[Answer]:
        async def answering(entry: Entry) -> Answer | None:
            call = entry_call(arrival)
            enter(call)
            return await self._calls.answer(entry, call, arrival)

        return await dispatch(message.entries, answering)

    def _refused(self, call: Call, error: MeshError, **reply: Any) -> Reply:
        self._calls.refused(call, error)
        return refusal(error, call.trace.trace_id, **reply)

    def _marks(self, arrival: Arrival) -> list[Header]:
        return [*marks_of(arrival), *self._load.farewell()]
