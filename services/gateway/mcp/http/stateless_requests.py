"""Requests of the revisions without sessions: each POST stands alone."""

from __future__ import annotations

from mcp_types.jsonrpc import INVALID_REQUEST

from libs.common.errors import MeshError, Reason
from services.gateway.mcp import lifecycle
from services.gateway.mcp.context import Caller
from services.gateway.mcp.dispatch import check_params
from services.gateway.mcp.http.envelope import check_envelope, check_version
from services.gateway.mcp.http.notification_streams import NotificationStream, NotificationStreams
from services.gateway.mcp.http.replies import Replies
from services.gateway.mcp.http.request import HttpRequest, context_of
from services.gateway.mcp.http.run_request import RunRequest
from services.gateway.mcp.http.stream_frames import SubscriptionFrames
from services.gateway.mcp.messages import ClientResponse, Message
from services.gateway.mcp.protocol import VERSION_HEADER, ProtocolError
from services.gateway.mcp.views import View
from services.gateway.transport.reply import Reply

LISTEN = "subscriptions/listen"


class StatelessRequests:
    """Serves requests that bring all they need."""

    def __init__(self, run: RunRequest, replies: Replies, streams: NotificationStreams) -> None:
        self._run, self._replies, self._streams = run, replies, streams

    async def post(
        self, request: HttpRequest, message: Message | ClientResponse, view: View, caller: Caller
    ) -> Reply | NotificationStream:
        """Serve one message."""
        if isinstance(message, ClientResponse):
            raise ProtocolError(INVALID_REQUEST, "a stateless revision has no responses of clients")
        if message.id is None:
            # Notifications have no effect here: a request is cancelled by closing its connection.
            check_version(request.headers.get(VERSION_HEADER, b"").decode("latin-1"))
            return Reply(202, [], b"")
        version = check_envelope(message, request.headers)
        if message.method != LISTEN:
            client = lifecycle.stateless_client(message.params)
            context = context_of(request, version, view, caller, message.id, client)
            return await self._run.run(request, message, context)
        check_params(message, version)
        if not request.accepts(b"text/event-stream"):
            error = MeshError(Reason.INVALID_REQUEST, message="the client must accept text/event-stream")
            return self._replies.refused(request, error, request_id=message.id, status=406)
        return self._streams.open_subscription(caller, view, SubscriptionFrames(message.id, message.params))
