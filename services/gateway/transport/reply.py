"""HTTP responses. On `/rpc` the body of a failure is a JSON-RPC error, on any other path the error envelope."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import dump
from services.gateway.domain.model import Response
from services.gateway.domain.response import envelope, response_body
from services.gateway.transport.asgi_types import Header, Headers, Send
from services.gateway.transport.request.headers import RequestHead

_UNAUTHENTICATED = 16
# Only failures of the mesh itself. The failure of a tool or of its dependency stays 200: a load balancer would take a
# 503 for a failure of the gateway.
_STATUS = {
    Reason.RATE_LIMITED: 429,
    Reason.OVERLOADED: 429,
    Reason.SERVICE_UNAVAILABLE: 503,
    Reason.AUDIT_UNAVAILABLE: 503,
    Reason.AUDIT_BACKPRESSURE: 503,
    Reason.POLICY_ENGINE_ERROR: 503,
}
JSON_TYPE = (b"content-type", b"application/json")


class Reply(NamedTuple):
    """One whole HTTP response."""

    status: int
    headers: Headers
    body: bytes


def rpc_reply(responses: Sequence[Response], *, batch: bool, trace_id: str) -> Reply:
    """Return the reply to a message: 204 when there is no response, 200 for every batch."""
    body = response_body(responses, batch=batch, trace_id=trace_id)
    if not responses:
        return Reply(204, [], body)
    error = responses[0].error
    return Reply(200, [], body) if batch or error is None else Reply(status_of(error), headers_of(error), body)


def with_status_of(reply: Reply, error: MeshError) -> Reply:
    """Return the reply with the status of an error that concerns the whole request, batch or notification too."""
    return Reply(status_of(error), headers_of(error), reply.body)


def refusal(error: MeshError, trace_id: str, *, status: int | None = None, headers: Sequence[Header] = ()) -> Reply:
    """Return the reply to a request that never became a call: a JSON-RPC error with a null id."""
    body = response_body([Response(None, error=error)], batch=False, trace_id=trace_id)
    return Reply(status or status_of(error), [*headers, *headers_of(error)], body)


def failure(error: MeshError, trace_id: str, *, status: int | None = None, headers: Sequence[Header] = ()) -> Reply:
    """Return the reply of a path outside of JSON-RPC: the envelope, with the status of the error's row."""
    body = dump(envelope(error, trace_id))
    return Reply(status or error.row.http_status, [*headers, *headers_of(error)], body)


def status_of(error: MeshError) -> int:
    """Return the HTTP status of a single call that failed."""
    return 401 if error.row.grpc_status == _UNAUTHENTICATED else _STATUS.get(error.reason, 200)


def headers_of(error: MeshError) -> Headers:
    """Return the HTTP headers of a failure: `www-authenticate` or `retry-after`."""
    status = status_of(error)
    if status == 401:
        proof = error.reason is Reason.TOKEN_PROOF_INVALID
        return [(b"www-authenticate", b'DPoP algs="ES256 EdDSA RS256"' if proof else b"Bearer")]
    if status in (429, 503):
        seconds = math.ceil(error.retry_after or 1.0)
        return [(b"retry-after", str(max(1, seconds)).encode())]
    return []


def correlation_headers(head: RequestHead) -> Headers:
    """Return the request id and the trace id as headers."""
    return [(b"x-request-id", head.request_id.encode()), (b"x-trace-id", head.trace.trace_id.encode())]


async def respond(send: Send, reply: Reply, *more: Header) -> None:
    """Send a reply."""
    headers = [*reply.headers, *more]
    if reply.body:
        headers += [JSON_TYPE, (b"content-length", str(len(reply.body)).encode())]
    elif reply.status != 204:
        headers.append((b"content-length", b"0"))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
