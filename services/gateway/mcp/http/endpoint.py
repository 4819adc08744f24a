"""The endpoint `/mcp` and `/mcp/<view>`: MCP Streamable HTTP, with sessions and without."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial

from libs.common.call_context import Call, enter
from libs.common.errors import MeshError, Reason
from services.gateway.mcp.context import Caller, CallerReader
from services.gateway.mcp.dispatch import McpDispatcher, protocol_answer
from services.gateway.mcp.http.envelope import is_stateless
from services.gateway.mcp.http.notification_streams import NotificationStream, NotificationStreams
from services.gateway.mcp.http.origin_check import OriginCheck
from services.gateway.mcp.http.protected_resource import view_name
from services.gateway.mcp.http.replies import Replies, reply_of
from services.gateway.mcp.http.request import HttpRequest
from services.gateway.mcp.http.run_request import RunRequest
from services.gateway.mcp.http.running import RunningRequests
from services.gateway.mcp.http.session_requests import SessionRequests
from services.gateway.mcp.http.stateless_requests import StatelessRequests
from services.gateway.mcp.invocations.answer import AnswerQuestion
from services.gateway.mcp.invocations.run_job import RunJob
from services.gateway.mcp.messages import MAX_BYTES, ClientResponse, InvalidMessageError, Message, parse_message
from services.gateway.mcp.ports import Cancellations, Sessions
from services.gateway.mcp.protocol import ProtocolError
from services.gateway.mcp.views import EVERYTHING, View, Views
from services.gateway.transport.asgi_types import DisconnectedError, Headers, Receive, Scope, Send
from services.gateway.transport.call_pipeline import begin_call
from services.gateway.transport.disconnect import while_connected
from services.gateway.transport.edge_log import EdgeLog
from services.gateway.transport.in_flight import InFlightRequests
from services.gateway.transport.reply import Reply, correlation_headers, respond
from services.gateway.transport.request.body import read_body
from services.gateway.transport.request.dpop_check import DpopCheck
from services.gateway.transport.request.headers import RequestHead, is_json, read_head, read_headers
from services.gateway.transport.response_stream import ResponseStream
from services.gateway.transport.rpc import INLINE_BYTES, MAX_STRANGER_BYTES


class McpEndpoint:
    """Serves MCP over HTTP."""

    def __init__(
        self,
        dispatcher: McpDispatcher,
        sessions: Sessions,
        cancellations: Cancellations,
        running: RunningRequests,
        streams: NotificationStreams,
        in_flight: InFlightRequests,
        dpop_check: DpopCheck,
        origin_check: OriginCheck,
        jobs: RunJob,
        answers: AnswerQuestion,
        views: Views,
        public_origins: Collection[str],
        edge_log: EdgeLog,
        sample_ratio: float,
    ) -> None:
        self._edge_log = edge_log
        self._dispatcher, self._in_flight, self._views = dispatcher, in_flight, views
        self._dpop_check, self._origin_check, self._sample_ratio = dpop_check, origin_check, sample_ratio
        self._replies = Replies(dispatcher, public_origins)
        run = RunRequest(dispatcher, running, self._replies)
        self._with_session = SessionRequests(run, self._replies, sessions, cancellations, streams, jobs, answers)
        self._stateless = StatelessRequests(run, self._replies, streams)
        self._callers = CallerReader()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = read_headers(scope)
        head = read_head(scope, headers, self._sample_ratio)
        if head.token and head.refusal is None:
            head.refusal = self._dpop_check.check(scope, headers, head.token)
        call = begin_call(head)
        enter(call)
        request = HttpRequest(
            scope, headers, head, call, receive, ResponseStream(send, partial(self._headers, head, call))
        )
        try:
            with self._in_flight:
                outcome = await self._outcome(request)
                if isinstance(outcome, Reply):
                    await self._respond(request, outcome, send)
                    return
            # A stream holds no slot: it waits, and does not work.
            await self._stream(outcome, request, send)
        except DisconnectedError:
            return
        except MeshError as error:
            await respond(send, self._replies.refused(request, error), *self._headers(head, call))

    async def _respond(self, request: HttpRequest, reply: Reply, send: Send) -> None:
        """Send a reply, as the last event where the response is a stream already."""
        if request.stream.opened:
            await request.stream.finish(reply.body)
        else:
            await respond(send, reply, *self._headers(request.head, request.call))

    async def _outcome(self, request: HttpRequest) -> Reply | NotificationStream:
        """Return the reply, or the stream that is the reply."""
        try:
            view, caller = await self._admit(request)
            verb = request.scope["method"]
            if verb == "POST":
                return await self._post(request, view, caller)
            if verb == "GET":
                return await self._with_session.get(request, view, caller)
            if verb == "DELETE":
                return await self._with_session.delete(request, caller)
        except ProtocolError as error:
            self._dispatcher.record_refusal(request.call, None)
            return reply_of(protocol_answer(error, None))
        except MeshError as error:
            return self._replies.refused(request, error)
        wrong_verb = MeshError(Reason.INVALID_REQUEST, message="MCP is called with POST, GET and DELETE")
        return self._replies.refused(request, wrong_verb, status=405, headers=[(b"allow", b"POST, GET, DELETE")])

    async def _admit(self, request: HttpRequest) -> tuple[View, Caller]:
        """Return the view and the caller, or raise why the request is not served."""
        head = request.head
        if head.refused_by_edge and head.refusal is not None:
            await read_body(request.receive, request.headers, MAX_STRANGER_BYTES, head.deadline_ms)
            raise head.refusal
        refusal = self._origin_check.check(request.headers)
        if refusal is not None:
            raise refusal
        name = view_name(request.scope["path"])
        view = EVERYTHING if name == "" else self._views.get(name or "")
        if view is None:
            raise MeshError(Reason.METHOD_NOT_FOUND, message="there is no such view")
        return view, self._callers.read(head.token)

    async def _post(self, request: HttpRequest, view: View, caller: Caller) -> Reply | NotificationStream:
        if not is_json(request.headers):
            error = MeshError(Reason.INVALID_REQUEST, message="the body must be application/json in UTF-8")
            return self._replies.refused(request, error, status=415)
        if not request.accepts(b"application/json"):
            error = MeshError(Reason.INVALID_REQUEST, message="the client must accept application/json")
            return self._replies.refused(request, error, status=406)
        body = await read_body(request.receive, request.headers, MAX_BYTES, request.head.deadline_ms)
        try:
            message = await _parse(body)
        except asyncio.CancelledError:
            raise MeshError(Reason.SERVICE_UNAVAILABLE) from None
        except InvalidMessageError as invalid:
            return self._replies.refused(request, invalid.error, request_id=invalid.request_id, status=400)
        asked = message if isinstance(message, Message) else None
        request_id = None if asked is None else asked.id
        try:
            if is_stateless(asked, request.headers):
                return await self._stateless.post(request, message, view, caller)
            return await self._with_session.post(request, message, view, caller)
        except ProtocolError as error:
            self._dispatcher.record_refusal(request.call, None)
            return reply_of(protocol_answer(error, request_id))
        except MeshError as error:
            return self._replies.refused(request, error, request_id=request_id)

    async def _stream(self, stream: NotificationStream, request: HttpRequest, send: Send) -> None:
        try:
            work = stream.serve(send, self._headers(request.head, request.call))
            await while_connected(request.scope["state"]["disconnect"], work)
        finally:
            stream.close()

    def _headers(self, head: RequestHead, call: Call) -> Headers:
        return [*correlation_headers(head), *self._edge_log.headers(call), *self._in_flight.close_headers()]


async def _parse(body: bytes) -> Message | ClientResponse:
    return parse_message(body) if len(body) <= INLINE_BYTES else await asyncio.to_thread(parse_message, body)
