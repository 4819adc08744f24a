"""HTTP replies of MCP: answers, refusals, and where tokens come from."""

from __future__ import annotations

from collections.abc import Collection

from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import dump
from services.gateway.mcp.dispatch import Answer, McpDispatcher, error_answer
from services.gateway.mcp.http.protected_resource import challenge
from services.gateway.mcp.http.request import HttpRequest
from services.gateway.transport.asgi_types import Header
from services.gateway.transport.reply import Reply
from services.gateway.transport.request.public_address import public_address


class Replies:
    """Makes replies of answers and errors."""

    def __init__(self, dispatcher: McpDispatcher, public_origins: Collection[str]) -> None:
        self._dispatcher, self._public_origins = dispatcher, public_origins

    def refused(
        self,
        request: HttpRequest,
        error: MeshError,
        *,
        request_id: str | int | None = None,
        status: int | None = None,
        headers: Collection[Header] = (),
    ) -> Reply:
        """Return the reply to a request that never became one of MCP, and record it."""
        self._dispatcher.record_refusal(request.call, error)
        by_row = status or {Reason.PAYLOAD_TOO_LARGE: 413, Reason.PEER_NOT_ALLOWED: 403}.get(error.reason)
        answer = error_answer(error, request_id, request.call.trace.trace_id, stateless=True, status=by_row)
        reply = reply_of(answer)
        return self.challenged(request, Reply(reply.status, [*reply.headers, *headers], reply.body))

    def challenged(self, request: HttpRequest, reply: Reply) -> Reply:
        """Return the reply; a 401 also says where tokens come from."""
        if reply.status != 401:
            return reply
        address = public_address(request.scope, self._public_origins)
        value = challenge(address, request.scope["path"], invalid=b"authorization" in request.headers)
        kept = [(name, sent) for name, sent in reply.headers if not sent.startswith(b"Bearer")]
        return Reply(401, [*kept, (b"www-authenticate", value)], reply.body)


def reply_of(answer: Answer) -> Reply:
    """Return the reply of an answer."""
    return Reply(answer.status, list(answer.headers), dump(answer.body))
