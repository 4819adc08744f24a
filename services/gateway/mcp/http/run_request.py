"""Runs a request while its client is connected."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from libs.common.errors import MeshError, Reason
from services.gateway.mcp.context import McpContext, Result
from services.gateway.mcp.dispatch import Answer, McpDispatcher, error_answer
from services.gateway.mcp.http.replies import Replies, reply_of
from services.gateway.mcp.http.request import HttpRequest
from services.gateway.mcp.http.running import RunningRequests, request_key
from services.gateway.mcp.messages import Message
from services.gateway.method import Row
from services.gateway.transport.asgi_types import DisconnectedError
from services.gateway.transport.disconnect import while_connected
from services.gateway.transport.reply import Reply

Work = Callable[[], Awaitable[Result]]


class RunRequest:
    """Runs requests. A client that left cannot get the answer, so the work stops."""

    def __init__(self, dispatcher: McpDispatcher, running: RunningRequests, replies: Replies) -> None:
        self._dispatcher, self._running, self._replies = dispatcher, running, replies

    async def run(self, request: HttpRequest, message: Message, context: McpContext) -> Reply:
        """Run the method that the message names."""
        work = self._dispatcher.run(message, context, request.call, request.head)
        return await self._while_connected(request, context, work)

    async def run_own(self, request: HttpRequest, context: McpContext, method: str, row: Row, work: Work) -> Reply:
        """Run work that no method of MCP asks for, under a method name of the gateway's own."""
        own = Message(context.request_id, method, {})
        answer = self._dispatcher.run_own(own, context, request.call, request.head, row, work)
        return await self._while_connected(request, context, answer)

    async def answer_own(self, request: HttpRequest, context: McpContext, method: str, row: Row, work: Work) -> Answer:
        """Run such work to its end, whether its client is connected or not, and return the answer."""
        own = Message(None, method, {})
        return await self._dispatcher.run_own(own, context, request.call, request.head, row, work)

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
            answer = _failed(request, context, error)
        except MeshError as error:
            answer = _failed(request, context, error)
        return self._replies.challenged(request, reply_of(answer))


def _failed(request: HttpRequest, context: McpContext, error: MeshError) -> Answer:
    return error_answer(error, context.request_id, request.call.trace.trace_id, stateless=context.stateless)
