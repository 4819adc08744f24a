"""Answers as HTTP. The body of every failure of JSON-RPC is its error, that of any other path the envelope alone; the status serves
those who read nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import dump
from services.gateway.domain.answer import body_of, envelope
from services.gateway.domain.model import Answer
from services.gateway.transport.asgi_types import Header, Headers, Send
from services.gateway.transport.request_headers import Arrival

_UNAUTHENTICATED = 16
# Only what concerns the mesh as a whole. The failure of one tool or of its dependency stays 200: a load balancer that
# read a 503 would take the gateway for sick.
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


def reply_to(answers: Sequence[Answer], *, batch: bool, trace_id: str) -> Reply:
    """Return the reply to a message: 204 when nobody waits for an answer, 200 for every batch."""
    body = body_of(answers, batch=batch, trace_id=trace_id)
    if not answers:
        return Reply(204, [], body)
    error = answers[0].error
    return Reply(200, [], body) if batch or error is None else Reply(status_of(error), headers_of(error), body)


def refusal(error: MeshError, trace_id: str, *, status: int | None = None, headers: Sequence[Header] = ()) -> Reply:
    """Return the reply to a request that never became a call: an error with a null id."""
    body = body_of([Answer(None, error=error)], batch=False, trace_id=trace_id)
    return Reply(status or status_of(error), [*headers, *headers_of(error)], body)


def failure(error: MeshError, trace_id: str, *, status: int | None = None, headers: Sequence[Header] = ()) -> Reply:
    """Return the reply of a path that speaks plain HTTP: the envelope, with the status of the error's row."""
    body = dump(envelope(error, trace_id))
    return Reply(status or error.row.http_status, [*headers, *headers_of(error)], body)


def status_of(error: MeshError) -> int:
    """Return the HTTP status of a single call that failed."""
    return 401 if error.row.grpc_status == _UNAUTHENTICATED else _STATUS.get(error.reason, 200)


def headers_of(error: MeshError) -> Headers:
    """Return what a client without JSON-RPC needs to know about the failure."""
    status = status_of(error)
    if status == 401:
        proof = error.reason is Reason.TOKEN_PROOF_INVALID
        return [(b"www-authenticate", b'DPoP algs="ES256 EdDSA RS256"' if proof else b"Bearer")]
    if status in (429, 503):
        seconds = math.ceil(error.retry_after or 1.0)
        return [(b"retry-after", str(max(1, seconds)).encode())]
    return []


def marks_of(arrival: Arrival) -> Headers:
    """Return what an answer is found again by."""
    return [(b"x-request-id", arrival.request_id.encode()), (b"x-trace-id", arrival.trace.trace_id.encode())]


async def respond(send: Send, reply: Reply, *more: Header) -> None:
    """Send a reply."""
    headers = [*reply.headers, *more]
    if reply.body:
        headers += [JSON_TYPE, (b"content-length", str(len(reply.body)).encode())]
    elif reply.status != 204:
        headers.append((b"content-length", b"0"))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
