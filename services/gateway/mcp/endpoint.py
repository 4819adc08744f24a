"""The endpoint `/mcp` and `/mcp/<view>`: MCP Streamable HTTP, with sessions and without."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Mapping
from typing import NamedTuple

from mcp_types.jsonrpc import INVALID_REQUEST

from libs.common.call_context import Call, enter
from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import dump
from services.gateway.mcp import lifecycle
from services.gateway.mcp.context import Caller, CallerReader, ClientFacts, McpContext, Result
from services.gateway.mcp.dispatch import Answer, McpDispatcher, check_params, error_answer, protocol_answer
from services.gateway.mcp.envelope import check_envelope, check_session_version, check_version, is_stateless
from services.gateway.mcp.invocations.answer import AnswerQuestion
from services.gateway.mcp.invocations.event_ids import EventId, decode_event_id
from services.gateway.mcp.invocations.questions import question_of
from services.gateway.mcp.invocations.run_job import RunJob
from services.gateway.mcp.messages import (
    MAX_BYTES,
    MAX_ID_LENGTH,
    ClientResponse,
    InvalidMessageError,
    Message,
    RequestId,
    parse_message,
)
from services.gateway.mcp.origin_check import OriginCheck
from services.gateway.mcp.ports import Cancellations, Sessions
from services.gateway.mcp.protected_resource import challenge, view_name
from services.gateway.mcp.protocol import (
    SESSION_HEADER,
    SESSION_VERSIONS,
    STATELESS_VERSIONS,
    VERSION_HEADER,
    ProtocolError,
)
from services.gateway.mcp.response_stream import ResponseStream
from services.gateway.mcp.running import RunningRequests, request_key
from services.gateway.mcp.streams import (
    NotificationStream,
    NotificationStreams,
    always_alive,
    session_frames,
    subscription_frames,
)
from services.gateway.mcp.views import EVERYTHING, View, Views
from services.gateway.policy import MCP_ANSWER, MCP_RESUMED_STREAM
from services.gateway.transport.asgi_types import DisconnectedError, Header, Headers, Receive, Scope, Send
from services.gateway.transport.body import read_body
from services.gateway.transport.call_pipeline import begin_call
from services.gateway.transport.disconnect import while_connected
from services.gateway.transport.dpop_check import DpopCheck
from services.gateway.transport.in_flight import InFlightRequests
from services.gateway.transport.public_address import public_address
from services.gateway.transport.reply import Reply, correlation_headers, respond
from services.gateway.transport.request_headers import RequestHead, is_json, read_head, read_headers
from services.gateway.transport.rpc import INLINE_BYTES, MAX_STRANGER_BYTES

LISTEN = "subscriptions/listen"
_MAX_SESSION_LENGTH = 128


class HttpRequest(NamedTuple):
    """One HTTP request, before it is known to be MCP."""

    scope: Scope
    headers: Mapping[bytes, bytes]
    head: RequestHead
    call: Call
    receive: Receive
    stream: ResponseStream
    """The response, where it is a stream of events."""

    @property
    def session(self) -> str:
        """The id of the session, as the client says it."""
        return self.headers.get(SESSION_HEADER, b"").decode("latin-1")


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
        sample_ratio: float,
    ) -> None:
        self._dispatcher, self._sessions, self._cancellations = dispatcher, sessions, cancellations
        self._running, self._streams, self._in_flight = running, streams, in_flight
        self._dpop_check, self._origin_check, self._views = dpop_check, origin_check, views
        self._jobs, self._answers = jobs, answers
        self._public_origins, self._sample_ratio = public_origins, sample_ratio
        self._callers = CallerReader()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = read_headers(scope)
        head = read_head(scope, headers, self._sample_ratio)
        if head.token and head.refusal is None:
            head.refusal = self._dpop_check.check(scope, headers, head.token)
        call = begin_call(head)
        enter(call)
        request = HttpRequest(scope, headers, head, call, receive, ResponseStream(send, self._headers(head)))
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
            await respond(send, self._refused(request, error), *self._headers(head))

    async def _respond(self, request: HttpRequest, reply: Reply, send: Send) -> None:
        """Send a reply, as the last event where the response is a stream already."""
        if request.stream.opened:
            await request.stream.finish(reply.body)
        else:
            await respond(send, reply, *self._headers(request.head))

    async def _outcome(self, request: HttpRequest) -> Reply | NotificationStream:
        """Return the reply, or the stream that is the reply."""
        try:
            view, caller = await self._admit(request)
            verb = request.scope["method"]
            if verb == "POST":
                return await self._post(request, view, caller)
            if verb == "GET":
                return await self._get(request, view, caller)
            if verb == "DELETE":
                return await self._delete(request, caller)
        except ProtocolError as error:
            self._dispatcher.record_refusal(request.call, None)
            return _reply(protocol_answer(error, None))
        except MeshError as error:
            return self._refused(request, error)
        wrong_verb = MeshError(Reason.INVALID_REQUEST, message="MCP is called with POST, GET and DELETE")
        return self._refused(request, wrong_verb, status=405, headers=[(b"allow", b"POST, GET, DELETE")])

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
            return self._refused(request, error, status=415)
        if not _accepts(request.headers, b"application/json"):
            error = MeshError(Reason.INVALID_REQUEST, message="the client must accept application/json")
            return self._refused(request, error, status=406)
        body = await read_body(request.receive, request.headers, MAX_BYTES, request.head.deadline_ms)
        try:
            message = await _parse(body)
        except asyncio.CancelledError:
            raise MeshError(Reason.SERVICE_UNAVAILABLE) from None
        except InvalidMessageError as invalid:
            return self._refused(request, invalid.error, request_id=invalid.request_id, status=400)
        asked = message if isinstance(message, Message) else None
        request_id = None if asked is None else asked.id
        try:
            if is_stateless(asked, request.headers):
                return await self._stateless(request, message, view, caller)
            return await self._in_session(request, message, view, caller)
        except ProtocolError as error:
            self._dispatcher.record_refusal(request.call, None)
            return _reply(protocol_answer(error, request_id))
        except MeshError as error:
            return self._refused(request, error, request_id=request_id)

    async def _stateless(
        self, request: HttpRequest, message: Message | ClientResponse, view: View, caller: Caller
    ) -> Reply | NotificationStream:
        if isinstance(message, ClientResponse):
            raise ProtocolError(INVALID_REQUEST, "a stateless revision has no responses of clients")
        if message.id is None:
            # Notifications have no effect here: a request is cancelled by closing its connection.
            check_version(request.headers.get(VERSION_HEADER, b"").decode("latin-1"))
            return Reply(202, [], b"")
        version = check_envelope(message, request.headers)
        if message.method != LISTEN:
            client = lifecycle.stateless_client(message.params)
            return await self._run(request, message, _context(request, version, view, caller, message.id, client))
        check_params(message, version)
        if not _accepts(request.headers, b"text/event-stream"):
            error = MeshError(Reason.INVALID_REQUEST, message="the client must accept text/event-stream")
            return self._refused(request, error, request_id=message.id, status=406)
        frames = subscription_frames(message.id, message.params)
        return self._streams.open(caller, view, frames, always_alive)

    async def _in_session(
        self, request: HttpRequest, message: Message | ClientResponse, view: View, caller: Caller
    ) -> Reply:
        if isinstance(message, Message) and message.method == "initialize" and message.id is not None:
            return await self._open_session(request, message, view, caller)
        version = check_session_version(request.headers)
        client = await self._client_of(request, caller)
        if isinstance(message, ClientResponse):
            return await self._take_answer(request, message, _context(request, version, view, caller, "", client))
        if message.id is None:
            if message.method == "notifications/cancelled":
                await self._cancel(request, message)
            return Reply(202, [], b"")
        return await self._run(request, message, _context(request, version, view, caller, message.id, client))

    async def _open_session(self, request: HttpRequest, message: Message, view: View, caller: Caller) -> Reply:
        assert message.id is not None
        context = _context(request, SESSION_VERSIONS[-1], view, caller, message.id, ClientFacts())
        reply = await self._run(request, message, context)
        client = lifecycle.session_client(message.params)
        if reply.status != 200 or client is None:
            return reply
        session = await self._sessions.open(caller.owner, client)
        return Reply(200, [*reply.headers, (SESSION_HEADER, session.encode())], reply.body)

    async def _take_answer(self, request: HttpRequest, message: ClientResponse, context: McpContext) -> Reply:
        """Hand the answer to a question to the tool that asked. Any other response is ignored."""
        question = question_of(message.id)
        if question is None:
            return Reply(202, [], b"")

        async def work() -> Result:
            if message.result is None:
                await self._answers.decline(question)
            else:
                await self._answers.answer(question, message.result)
            return {}

        own = Message(None, "elicitation/answer", {})
        answer = await self._dispatcher.run_own(own, context, request.call, request.head, MCP_ANSWER, work)
        if "error" not in answer.body:
            return Reply(202, [], b"")
        return self._challenged(request, _reply(answer._replace(status=400 if answer.status == 200 else answer.status)))

    async def _cancel(self, request: HttpRequest, message: Message) -> None:
        """Cancel a request of the same session. Anything else is ignored, as the protocol demands."""
        cancelled = message.params.get("requestId")
        if isinstance(cancelled, str | int) and len(str(cancelled)) <= MAX_ID_LENGTH:
            await self._cancellations.cancel(request_key(request.session, cancelled))

    async def _run(self, request: HttpRequest, message: Message, context: McpContext) -> Reply:
        """Run a request while its client is connected. A client that left cannot get the answer, so the work stops."""
        work = self._dispatcher.run(message, context, request.call, request.head)
        return await self._while_connected(request, context, work)

    async def _while_connected(self, request: HttpRequest, context: McpContext, work: Awaitable[Answer]) -> Reply:
        if context.session:
            key = request_key(context.session, context.request_id)
            work = self._running.run(key, work, context.cancellation)
        try:
            answer = await while_connected(request.scope["state"]["disconnect"], work)
        except asyncio.CancelledError:
            # The client is still connected, so the process is ending.
            if context.session and request.stream.opened:
                # Another replica goes on with the stream.
                raise DisconnectedError from None
            error = MeshError(Reason.SERVICE_UNAVAILABLE, metadata={"outcome": "unknown"})
            trace_id = request.call.trace.trace_id
            answer = error_answer(error, context.request_id, trace_id, stateless=context.stateless)
        except MeshError as error:
            trace_id = request.call.trace.trace_id
            answer = error_answer(error, context.request_id, trace_id, stateless=context.stateless)
        return self._challenged(request, _reply(answer))

    async def _get(self, request: HttpRequest, view: View, caller: Caller) -> Reply | NotificationStream:
        if is_stateless(None, request.headers):
            error = MeshError(Reason.INVALID_REQUEST, message="this revision has no stream without a request")
            return self._refused(request, error, status=405, headers=[(b"allow", b"POST")])
        if not _accepts(request.headers, b"text/event-stream"):
            error = MeshError(Reason.INVALID_REQUEST, message="the client must accept text/event-stream")
            return self._refused(request, error, status=406)
        version = check_session_version(request.headers)
        client = await self._client_of(request, caller)
        event = decode_event_id(request.headers.get(b"last-event-id", b"").decode("latin-1"))
        if event is not None:
            return await self._resume(
                request, event, _context(request, version, view, caller, event.request_id, client)
            )
        session = request.session

        async def alive() -> bool:
            return await self._sessions.get(caller.owner, session) is not None

        return self._streams.open(caller, view, session_frames(), alive)

    async def _resume(self, request: HttpRequest, event: EventId, context: McpContext) -> Reply:
        """Go on with the stream of a call that was cut, on this replica or another."""
        own = Message(context.request_id, "streams/resume", {})
        work = self._dispatcher.run_own(
            *(own, context, request.call, request.head, MCP_RESUMED_STREAM), lambda: self._jobs.resume(event, context)
        )
        reply = await self._while_connected(request, context, work)
        if reply.status == 200:
            # The answer to a GET is a stream, also if it has one event alone.
            await request.stream.open()
        return reply

    async def _delete(self, request: HttpRequest, caller: Caller) -> Reply:
        if is_stateless(None, request.headers):
            error = MeshError(Reason.INVALID_REQUEST, message="this revision has no sessions")
            return self._refused(request, error, status=405, headers=[(b"allow", b"POST")])
        if not await self._sessions.end(caller.owner, _session_id(request)):
            raise _no_session()
        return Reply(204, [], b"")

    async def _client_of(self, request: HttpRequest, caller: Caller) -> ClientFacts:
        client = await self._sessions.get(caller.owner, _session_id(request))
        if client is None:
            raise _no_session()
        return client

    async def _stream(self, stream: NotificationStream, request: HttpRequest, send: Send) -> None:
        try:
            work = stream.serve(send, self._headers(request.head))
            await while_connected(request.scope["state"]["disconnect"], work)
        finally:
            stream.close()

    def _refused(
        self,
        request: HttpRequest,
        error: MeshError,
        *,
        request_id: str | int | None = None,
        status: int | None = None,
        headers: Collection[Header] = (),
    ) -> Reply:
        self._dispatcher.record_refusal(request.call, error)
        by_row = status or {Reason.PAYLOAD_TOO_LARGE: 413, Reason.PEER_NOT_ALLOWED: 403}.get(error.reason)
        answer = error_answer(error, request_id, request.call.trace.trace_id, stateless=True, status=by_row)
        reply = _reply(answer)
        return self._challenged(request, Reply(reply.status, [*reply.headers, *headers], reply.body))

    def _challenged(self, request: HttpRequest, reply: Reply) -> Reply:
        """Return the reply; a 401 also says where tokens come from."""
        if reply.status != 401:
            return reply
        address = public_address(request.scope, self._public_origins)
        value = challenge(address, request.scope["path"], invalid=b"authorization" in request.headers)
        kept = [(name, sent) for name, sent in reply.headers if not sent.startswith(b"Bearer")]
        return Reply(401, [*kept, (b"www-authenticate", value)], reply.body)

    def _headers(self, head: RequestHead) -> Headers:
        return [*correlation_headers(head), *self._in_flight.close_headers()]


def _reply(answer: Answer) -> Reply:
    return Reply(answer.status, list(answer.headers), dump(answer.body))


def _context(
    request: HttpRequest, version: str, view: View, caller: Caller, request_id: RequestId, client: ClientFacts
) -> McpContext:
    stateless = version in STATELESS_VERSIONS
    session = "" if stateless else request.session
    deadline_ms = request.head.deadline_ms
    return McpContext(version, stateless, view, caller, request_id, request.stream, session, client, deadline_ms)


def _session_id(request: HttpRequest) -> str:
    session = request.session
    if not session or len(session) > _MAX_SESSION_LENGTH:
        raise ProtocolError(INVALID_REQUEST, "send the mcp-session-id that initialize answered with")
    return session


def _no_session() -> ProtocolError:
    return ProtocolError(INVALID_REQUEST, "there is no such session; initialize a new one", status=404)


def _accepts(headers: Mapping[bytes, bytes], media_type: bytes) -> bool:
    accepted = headers.get(b"accept", b"*/*").lower()
    family = media_type.partition(b"/")[0] + b"/*"
    return any(kind in accepted for kind in (media_type, family, b"*/*"))


async def _parse(body: bytes) -> Message | ClientResponse:
    return parse_message(body) if len(body) <= INLINE_BYTES else await asyncio.to_thread(parse_message, body)
