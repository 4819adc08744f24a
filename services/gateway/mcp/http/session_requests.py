"""Requests of the revisions with sessions: POST, GET and DELETE."""

from __future__ import annotations

from libs.common.errors import MeshError, Reason
from services.gateway.mcp import lifecycle
from services.gateway.mcp.context import Caller, ClientFacts, McpContext, Result
from services.gateway.mcp.http.envelope import check_session_version, is_stateless
from services.gateway.mcp.http.notification_streams import NotificationStream, NotificationStreams
from services.gateway.mcp.http.replies import Replies, reply_of
from services.gateway.mcp.http.request import HttpRequest, context_of, no_session, session_id
from services.gateway.mcp.http.run_request import RunRequest
from services.gateway.mcp.http.running import request_key
from services.gateway.mcp.invocations.answer import AnswerQuestion
from services.gateway.mcp.invocations.event_ids import EventId, decode_event_id
from services.gateway.mcp.invocations.questions import question_of
from services.gateway.mcp.invocations.run_job import RunJob
from services.gateway.mcp.messages import MAX_ID_LENGTH, ClientResponse, Message
from services.gateway.mcp.ports import Cancellations, Sessions
from services.gateway.mcp.protocol import SESSION_HEADER, SESSION_VERSIONS
from services.gateway.mcp.views import View
from services.gateway.policy import MCP_ANSWER, MCP_RESUMED_STREAM
from services.gateway.transport.reply import Reply


class SessionRequests:
    """Serves requests of sessions, which any replica may have opened."""

    def __init__(
        self,
        run: RunRequest,
        replies: Replies,
        sessions: Sessions,
        cancellations: Cancellations,
        streams: NotificationStreams,
        jobs: RunJob,
        answers: AnswerQuestion,
    ) -> None:
        self._run, self._replies, self._sessions, self._cancellations = run, replies, sessions, cancellations
        self._streams, self._jobs, self._answers = streams, jobs, answers

    async def post(self, request: HttpRequest, message: Message | ClientResponse, view: View, caller: Caller) -> Reply:
        """Serve one message."""
        if isinstance(message, Message) and message.method == "initialize" and message.id is not None:
            return await self._open_session(request, message, view, caller)
        version = check_session_version(request.headers)
        client = await self._client_of(request, caller)
        if isinstance(message, ClientResponse):
            return await self._take_answer(request, message, context_of(request, version, view, caller, "", client))
        if message.id is None:
            if message.method == "notifications/cancelled":
                await self._cancel(request, message)
            return Reply(202, [], b"")
        return await self._run.run(request, message, context_of(request, version, view, caller, message.id, client))

    async def get(self, request: HttpRequest, view: View, caller: Caller) -> Reply | NotificationStream:
        """Open the stream of a session, or go on with the stream of a call that was cut."""
        if is_stateless(None, request.headers):
            error = MeshError(Reason.INVALID_REQUEST, message="this revision has no stream without a request")
            return self._replies.refused(request, error, status=405, headers=[(b"allow", b"POST")])
        if not request.accepts(b"text/event-stream"):
            error = MeshError(Reason.INVALID_REQUEST, message="the client must accept text/event-stream")
            return self._replies.refused(request, error, status=406)
        version = check_session_version(request.headers)
        client = await self._client_of(request, caller)
        event = decode_event_id(request.headers.get(b"last-event-id", b"").decode("latin-1"))
        if event is not None:
            context = context_of(request, version, view, caller, event.request_id, client)
            return await self._resume(request, event, context)
        session = request.session

        async def alive() -> bool:
            return await self._sessions.get(caller.owner, session) is not None

        return self._streams.open_session(caller, view, session, alive)

    async def delete(self, request: HttpRequest, caller: Caller) -> Reply:
        """End a session."""
        if is_stateless(None, request.headers):
            error = MeshError(Reason.INVALID_REQUEST, message="this revision has no sessions")
            return self._replies.refused(request, error, status=405, headers=[(b"allow", b"POST")])
        if not await self._sessions.end(caller.owner, session_id(request)):
            raise no_session()
        return Reply(204, [], b"")

    async def _open_session(self, request: HttpRequest, message: Message, view: View, caller: Caller) -> Reply:
        assert message.id is not None
        context = context_of(request, SESSION_VERSIONS[-1], view, caller, message.id, ClientFacts())
        reply = await self._run.run(request, message, context)
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

        answer = await self._run.answer_own(request, context, "elicitation/answer", MCP_ANSWER, work)
        if "error" not in answer.body:
            return Reply(202, [], b"")
        refused = reply_of(answer._replace(status=400 if answer.status == 200 else answer.status))
        return self._replies.challenged(request, refused)

    async def _cancel(self, request: HttpRequest, message: Message) -> None:
        """Cancel a request of the same session. Anything else is ignored, as the protocol demands."""
        cancelled = message.params.get("requestId")
        if isinstance(cancelled, str | int) and len(str(cancelled)) <= MAX_ID_LENGTH:
            await self._cancellations.cancel(request_key(request.session, cancelled))

    async def _resume(self, request: HttpRequest, event: EventId, context: McpContext) -> Reply:
        """Go on with the stream of a call that was cut, on this replica or another."""
        reply = await self._run.run_own(
            request, context, "streams/resume", MCP_RESUMED_STREAM, lambda: self._jobs.resume(event, context)
        )
        if reply.status == 200:
            # The answer to a GET is a stream, also if it has one event alone.
            await request.stream.open()
        return reply

    async def _client_of(self, request: HttpRequest, caller: Caller) -> ClientFacts:
        client = await self._sessions.get(caller.owner, session_id(request))
        if client is None:
            raise no_session()
        return client
