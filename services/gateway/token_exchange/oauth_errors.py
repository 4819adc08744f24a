"""Errors of a token endpoint (RFC 6749, section 5.2), with the error envelope of the mesh beside them."""

from __future__ import annotations

import re

from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import dump
from services.gateway.domain.response import envelope
from services.gateway.transport.asgi_types import Header
from services.gateway.transport.outcome import FormError
from services.gateway.transport.reply import Reply, headers_of

NO_STORE: tuple[Header, ...] = ((b"cache-control", b"no-store"), (b"pragma", b"no-cache"))
# The characters that a description may not have.
_FORBIDDEN = re.compile(r"[^\x20-\x21\x23-\x5B\x5D-\x7E]")
_CODES = {
    Reason.AUTHORITY_EXCEEDED: ("invalid_scope", 400),
    Reason.TOKEN_PROOF_INVALID: ("invalid_dpop_proof", 400),
    Reason.PAYLOAD_TOO_LARGE: ("invalid_request", 413),
    Reason.RATE_LIMITED: ("temporarily_unavailable", 429),
    Reason.OVERLOADED: ("temporarily_unavailable", 429),
    Reason.INTERNAL: ("server_error", 500),
}


class OAuthError(FormError):
    """A request that is refused before anything is asked of authz."""

    def __init__(self, code: str, description: str, *headers: Header, status: int = 400) -> None:
        super().__init__(description, *headers, status=status)
        self.code = code


def refusal_reply(refusal: OAuthError | MeshError, trace_id: str) -> Reply:
    """Return the reply to a refused request."""
    if isinstance(refusal, OAuthError):
        return _reply(refusal.code, refusal.status, refusal.error, trace_id, *refusal.headers)
    code, status = _CODES.get(refusal.reason) or _code_of(refusal)
    return _reply(code, status, refusal, trace_id)


def _code_of(error: MeshError) -> tuple[str, int]:
    """Return the code of any other reason. RFC 8693, section 2.2.2: an invalid subject token is an invalid request."""
    status = error.row.http_status
    return ("temporarily_unavailable", 503) if status >= 500 else ("invalid_request", 400)


def _reply(code: str, status: int, error: MeshError, trace_id: str, *headers: Header) -> Reply:
    body = {
        "error": code,
        "error_description": _FORBIDDEN.sub("'", error.message)[:500],
        "envelope": envelope(error, trace_id),
    }
    retry = [header for header in headers_of(error) if header[0] == b"retry-after"]
    return Reply(status, [*NO_STORE, *headers, *retry], dump(body))
