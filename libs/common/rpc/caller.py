"""Third stage: establishes which peer calls, and which caller it calls for."""

from __future__ import annotations

from typing import Any

from libs.common.auth.peers import peer_of
from libs.common.auth.tokens import TokenVerifier
from libs.common.errors import MeshError, Reason
from libs.common.rpc.call import Call
from libs.common.rpc.policy import ANY_PEER, PLATFORM, Access, Policy


class CallerCheck:
    """Identifies the peer by its certificate and the caller by its token, and refuses whom the row does not name."""

    def __init__(self, policy: Policy, verifier: TokenVerifier, trust_domain: str) -> None:
        self._policy = {**PLATFORM, **policy}
        self._verifier = verifier
        self._trust_domain = trust_domain

    async def enter(self, call: Call, context: Any) -> None:
        # Not auth_context(): that copies the whole certificate chain for every call.
        call.peer = peer_of(self._trust_domain, context.peer_identity_key(), context.peer_identities())
        bearer, call.token = call.token, ""
        access = self._access(call)
        if access.needs_caller:
            call.token = _bearer(bearer)
            call.identity = await self._verifier.verify(call.token)
            missing = access.scopes - call.identity.scopes
            if missing:
                raise MeshError(Reason.SCOPE_MISSING, metadata={"required_scopes": " ".join(sorted(missing))})

    async def leave(self, call: Call, context: Any, error: BaseException | None) -> BaseException | None:
        return error

    def _access(self, call: Call) -> Access:
        row = self._policy.get(call.method)
        if row is None:
            raise MeshError(Reason.METHOD_NOT_FOUND)
        access = row.allow.get(call.peer) or (row.allow.get(ANY_PEER) if call.peer else None)
        if access is None:
            raise MeshError(Reason.PEER_NOT_ALLOWED)
        return access


def _bearer(authorization: str) -> str:
    if not authorization:
        raise MeshError(Reason.UNAUTHENTICATED)
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise MeshError(Reason.TOKEN_MALFORMED)
    return token.strip()
