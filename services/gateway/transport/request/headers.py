"""Reads the request headers: trace, token, deadline, media type. None of them is trusted."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from libs.common.auth.jose import MAX_TOKEN_BYTES
from libs.common.auth.peers import EDGE
from libs.common.deadline_header import parse_deadline, parse_timeout
from libs.common.errors import MeshError, Reason, Violation
from libs.common.ids import new_id
from libs.common.trace_context import TraceContext, continue_trace
from services.gateway.transport.asgi_types import Header, Scope

# Values are passed on as gRPC metadata, which carries visible ASCII only.
_VISIBLE = re.compile(r"[!-~]+")
_MAX_KEY = 255
_EDGE_REASONS = {
    reason.name: reason
    for reason in (
        Reason.UNAUTHENTICATED,
        Reason.TOKEN_EXPIRED,
        Reason.TOKEN_SIGNATURE_INVALID,
        Reason.TOKEN_AUDIENCE_INVALID,
        Reason.SERVICE_UNAVAILABLE,
    )
}


@dataclass(slots=True)
class RequestHead:
    """The headers of one request, parsed."""

    peer: str
    trace: TraceContext
    request_id: str
    token: str
    deadline_ms: int | None
    started: float
    idempotency_key: str
    """The key of the call, from its header; empty for none."""
    refusal: MeshError | None
    """The error of malformed headers; every call of the request fails with it."""
    refused_by_edge: bool = False
    """True if the edge did not accept the token. It leaves the answer to the gateway, which knows the calls' ids."""


def read_headers(scope: Scope) -> dict[bytes, bytes]:
    """Return the headers by name. A repeated header is joined with commas, as the edge does: choosing one of them could
    differ from the edge's choice."""
    sent: list[Header] = scope["headers"]
    headers = dict(sent)
    if len(headers) < len(sent):
        headers = {name: b",".join(value for key, value in sent if key == name) for name in headers}
    return headers


def read_head(scope: Scope, headers: Mapping[bytes, bytes], sample_ratio: float) -> RequestHead:
    """Read the headers of calls. Malformed ones become the refusal, so that the response has the call's id."""
    started = time.monotonic()
    refusal: MeshError | None = None
    token, deadline_ms, key = "", None, ""
    by_edge = _edge_refusal(scope, headers)
    try:
        token = "" if by_edge is not None else _token(_text(headers, b"authorization"))
        if b"x-deadline-ms" in headers:
            deadline_ms = parse_deadline(_text(headers, b"x-deadline-ms"))
        if b"request-timeout" in headers:
            timeout_ms = parse_timeout(_text(headers, b"request-timeout"))
            deadline_ms = timeout_ms if deadline_ms is None else min(deadline_ms, timeout_ms)
        if b"idempotency-key" in headers:
            key = parse_key(_text(headers, b"idempotency-key"))
    except MeshError as error:
        refusal = error
    return RequestHead(
        peer=scope["state"].get("peer", ""),
        trace=continue_trace(
            _text(headers, b"traceparent"),
            _text(headers, b"tracestate"),
            sample_ratio=sample_ratio,
        ),
        request_id=_request_id(_text(headers, b"x-request-id")),
        token=token,
        deadline_ms=deadline_ms,
        idempotency_key=key,
        started=started,
        refusal=by_edge or refusal,
        refused_by_edge=by_edge is not None,
    )


def accepts_events(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether the client asks for events by name."""
    return b"text/event-stream" in headers.get(b"accept", b"").lower()


def parse_key(text: str) -> str:
    """Read the `Idempotency-Key` header, in quotes or without. Raises INVALID_REQUEST.

    A comma is refused: a header that is there twice was joined with one.
    """
    key = text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
    if len(key) > _MAX_KEY or "," in key or '"' in key or not _VISIBLE.fullmatch(key):
        rule = f"1 to {_MAX_KEY} visible ASCII characters without commas and quotes, as a whole in quotes or without"
        raise MeshError(Reason.INVALID_REQUEST, violations=[Violation("idempotency-key", "form", rule)])
    return key


def _edge_refusal(scope: Scope, headers: Mapping[bytes, bytes]) -> MeshError | None:
    """Return why the edge did not accept the token. Only the edge is believed, which removes a caller's own header."""
    name = _text(headers, b"x-toolmesh-refusal")
    if not name or scope["state"].get("peer", "") != EDGE:
        return None
    return MeshError(_EDGE_REASONS.get(name, Reason.TOKEN_MALFORMED))


def is_json(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether the body is declared as plain UTF-8 JSON."""
    if headers.get(b"content-type") == b"application/json" and b"content-encoding" not in headers:
        return True
    kind, _, rest = _text(headers, b"content-type").lower().partition(";")
    parameters = [part.strip() for part in rest.split(";") if part.strip()]
    encoding = _text(headers, b"content-encoding").lower()
    return (
        kind.strip() == "application/json"
        and all(p in ("charset=utf-8", 'charset="utf-8"') for p in parameters)
        and encoding in ("", "identity")
    )


def _text(headers: Mapping[bytes, bytes], name: bytes) -> str:
    return headers.get(name, b"").decode("latin-1")


def _request_id(given: str) -> str:
    return given if len(given) <= 128 and _VISIBLE.fullmatch(given) else new_id()


def _token(authorization: str) -> str:
    """Return the token; empty when none was sent."""
    if not authorization:
        return ""
    scheme, _, token = authorization.partition(" ")
    token = token.strip()
    if scheme.lower() not in ("bearer", "dpop") or len(token) > MAX_TOKEN_BYTES or not _VISIBLE.fullmatch(token):
        raise MeshError(Reason.TOKEN_MALFORMED)
    return token
