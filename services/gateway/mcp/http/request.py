"""One HTTP request to `/mcp`, before and after it is known to be MCP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mcp_types.jsonrpc import INVALID_REQUEST

from libs.common.call_context import Call
from services.gateway.mcp.context import Caller, ClientFacts, McpContext
from services.gateway.mcp.messages import RequestId
from services.gateway.mcp.protocol import SESSION_HEADER, STATELESS_VERSIONS, ProtocolError
from services.gateway.mcp.views import View
from services.gateway.transport.asgi_types import Receive, Scope
from services.gateway.transport.request.headers import RequestHead
from services.gateway.transport.response_stream import ResponseStream

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

    def accepts(self, media_type: bytes) -> bool:
        """Return whether the client takes a response of this type."""
        accepted = self.headers.get(b"accept", b"*/*").lower()
        family = media_type.partition(b"/")[0] + b"/*"
        return any(kind in accepted for kind in (media_type, family, b"*/*"))


def context_of(
    request: HttpRequest, version: str, view: View, caller: Caller, request_id: RequestId, client: ClientFacts
) -> McpContext:
    """Return what the handlers see of a request."""
    stateless = version in STATELESS_VERSIONS
    session = "" if stateless else request.session
    deadline_ms = request.head.deadline_ms
    return McpContext(version, stateless, view, caller, request_id, request.stream, session, client, deadline_ms)


def session_id(request: HttpRequest) -> str:
    """Return the id of the session. Raises ProtocolError for a request without a usable one."""
    session = request.session
    if not session or len(session) > _MAX_SESSION_LENGTH:
        raise ProtocolError(INVALID_REQUEST, "send the mcp-session-id that initialize answered with")
    return session


def no_session() -> ProtocolError:
    """Return the error of a session that does not exist."""
    return ProtocolError(INVALID_REQUEST, "there is no such session; initialize a new one", status=404)
