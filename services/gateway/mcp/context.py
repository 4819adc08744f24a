"""A request as the handlers of MCP methods see it."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from libs.common.auth.jose import payload_of
from libs.common.errors import MeshError, Reason
from libs.common.runtime.bounded_cache import BoundedCache
from services.gateway.mcp.messages import RequestId
from services.gateway.mcp.views import View
from services.gateway.transport.response_stream import ResponseStream

_MAX_CACHED = 10_000


@dataclass(frozen=True, slots=True)
class Caller:
    """The holder of a token. Its claims are unverified here: the edge verified them, and every service does again."""

    owner: str
    """Names tenant and subject, and tells neither."""
    expires_at: float


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """What a client said of itself: for its session, or with its stateless request."""

    elicitation: bool = False
    """True if it can show a form to a person."""
    sampling: bool = False
    """True if its model completes conversations of servers."""
    roots: bool = False
    """True if it names the folders that it works in."""
    tasks: bool = False
    """True if it takes a task instead of a result. In a session it asks for each one instead."""
    log_level: str = ""
    """The least important level of log lines that it wants; empty for no lines."""


@dataclass(slots=True)
class Cancellation:
    """Whether the client cancelled the request. One that has only lost its connection did not."""

    requested: bool = False


@dataclass(frozen=True, slots=True)
class McpContext:
    """One request: its revision, view and caller. A stateless request has no session."""

    version: str
    stateless: bool
    view: View
    caller: Caller
    request_id: RequestId
    stream: ResponseStream
    session: str = ""
    client: ClientFacts = ClientFacts()
    deadline_ms: int | None = None
    """The deadline that the caller set by header."""
    cancellation: Cancellation = field(default_factory=Cancellation)


Result = dict[str, Any]
McpHandler = Callable[[dict[str, Any], McpContext], Awaitable[Result]]


class CallerReader:
    """Reads the caller of a token, once for each token."""

    def __init__(self) -> None:
        # By the tokens' hashes: the tokens themselves would be secrets, and many megabytes.
        self._callers: BoundedCache[bytes, Caller] = BoundedCache(_MAX_CACHED)

    def read(self, token: str) -> Caller:
        """Return the caller. Raises UNAUTHENTICATED without a token, TOKEN_MALFORMED for one without claims."""
        if not token:
            raise MeshError(Reason.UNAUTHENTICATED)
        key = hashlib.sha256(token.encode()).digest()
        return self._callers.get(key) or self._callers.put(key, _caller_of(token))


def _caller_of(token: str) -> Caller:
    try:
        claims = payload_of(token)
    except IndexError:
        raise MeshError(Reason.TOKEN_MALFORMED) from None
    tenant, subject, expires_at = claims.get("tenant", ""), claims.get("sub", ""), claims.get("exp", 0)
    if not isinstance(tenant, str) or not isinstance(subject, str) or not isinstance(expires_at, int | float):
        raise MeshError(Reason.TOKEN_MALFORMED)
    owner = hashlib.sha256(f"{len(tenant)}:{tenant}{subject}".encode()).hexdigest()
    return Caller(owner, float(expires_at))
