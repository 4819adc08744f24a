"""Acts on behalf of callers that are no longer connected, with the token that they started a job with."""

from __future__ import annotations

from libs.common.auth.tokens import TokenVerifier
from libs.common.call_context import Call, enter
from libs.common.ids import new_id, new_span_id
from libs.common.trace_context import TraceContext
from services.executor.convert.invocation import caller_of
from services.executor.domain.model import Caller, Request

METHOD = "/toolmesh.executor.v1.InvocationService/StartInvocation"


class TokenSessions:
    """Verifies a stored token as if it came with a new request, revocation included."""

    def __init__(self, verifier: TokenVerifier) -> None:
        self._verifier = verifier

    async def resume(self, token: str, request: Request, deadline: float) -> Caller:
        """Make the caller's token that of the current task, and return the caller. Raises TOKEN_EXPIRED and others."""
        identity = await self._verifier.verify(token)
        peer, session = request.caller.peer, request.caller.session_id
        trace = TraceContext(request.trace_id, new_span_id(), "", sampled=False)
        enter(Call(METHOD, trace, peer=peer, identity=identity, token=token, deadline=deadline, request_id=new_id()))
        return caller_of(identity, session, peer)
