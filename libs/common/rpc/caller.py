"""Third stage: establishes which peer calls, and which caller it calls for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from libs.common.auth.identity import Identity
from libs.common.auth.peers import peer_of
from libs.common.auth.tokens import TokenVerifier
from libs.common.errors import MeshError, Reason
from libs.common.rpc.call import Call
from libs.common.rpc.policy import ANY_PEER, PLATFORM, Access, Policy
from libs.common.rpc.proof import HolderCheck


class CallerCheck:
    """Identifies the peer by its certificate and the caller by its token, and refuses whom the row does not name."""

    def __init__(self, policy: Policy, verifier: TokenVerifier, trust_domain: str) -> None:
        self._policy = {**PLATFORM, **policy}
        self._verifier = verifier
        self._trust_domain = trust_domain
        self._prove = HolderCheck()
        self._open = OpenStreams(verifier)

    def stays_open(self, method: str) -> bool:
        """Say whether calls of a method are streams that last as long as both sides want."""
        return method in self._policy and self._policy[method].deadline is None

    def identifying(self, method: str) -> Callable[[Call, Any], Awaitable[None] | None]:
        """Return what establishes who calls a method, or raises to refuse; it returns what must be awaited for that, if anything."""
        row = self._policy.get(method)

        def identify(call: Call, context: Any) -> Awaitable[None] | None:
            # Not auth_context(): that copies the whole certificate chain for every call.
            identities = tuple(context.peer_identities() or ())
            call.peer = peer = peer_of(self._trust_domain, context.peer_identity_key(), identities)
            bearer, call.token = call.token, ""
            if row is None:
                raise MeshError(Reason.METHOD_NOT_FOUND)
            access = row.allow.get(peer) or (row.allow.get(ANY_PEER) if peer else None)
            if access is None:
                raise MeshError(Reason.PEER_NOT_ALLOWED)
            if not access.needs_caller:
                return None
            scheme, call.token = _credential(bearer)
            known = self._verifier.known(call.token)
            if known is None:
                return self._verify(call, context, access, scheme)
            self._identify(call, context, access, scheme, known)
            return None

        return identify

    async def _verify(self, call: Call, context: Any, access: Access, scheme: str) -> None:
        self._identify(call, context, access, scheme, await self._verifier.verify(call.token))

    def _identify(self, call: Call, context: Any, access: Access, scheme: str, identity: Identity) -> None:
        call.identity = identity
        if identity.confirmation or scheme == _DPOP:
            self._prove(call, identity, context)
        if not access.scopes <= identity.scopes:
            missing = access.scopes - identity.scopes
            raise MeshError(Reason.SCOPE_MISSING, metadata={"required_scopes": " ".join(sorted(missing))})
        if self.stays_open(call.method):
            self._open.begin(call)

    def leave(self, call: Call, error: BaseException | None) -> BaseException | None:
        """Forget a call that may have stayed open; return what it ends with."""
        return self._open.end(call, error)


class OpenStreams:
    """The streams that callers hold open. Those whose token is revoked meanwhile end with TOKEN_REVOKED."""

    def __init__(self, verifier: TokenVerifier) -> None:
        self._tasks: dict[int, tuple[Call, asyncio.Task[Any]]] = {}
        self._revoked: set[int] = set()
        self._view = verifier.revocations
        if self._view is not None:
            self._view.listen(self._look)

    def begin(self, call: Call) -> None:
        """Note a stream of the current task."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks[id(call)] = call, task

    def end(self, call: Call, error: BaseException | None) -> BaseException | None:
        """Forget a stream, and return what it ends with."""
        self._tasks.pop(id(call), None)
        if id(call) not in self._revoked:
            return error
        self._revoked.discard(id(call))
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.uncancel() == 0:
            return MeshError(Reason.TOKEN_REVOKED)
        return error

    def _look(self) -> None:
        assert self._view is not None
        for name, (call, task) in self._tasks.items():
            if name not in self._revoked and call.identity and self._view.refuses(call.identity.descent):
                self._revoked.add(name)
                task.cancel()


_BEARER, _DPOP = "bearer", "dpop"


def _credential(authorization: str) -> tuple[str, str]:
    """Return the scheme and the token; both schemes carry one, and what must be proved the token itself says."""
    if not authorization:
        raise MeshError(Reason.UNAUTHENTICATED)
    scheme, _, token = authorization.partition(" ")
    scheme = scheme.lower()
    if scheme not in (_BEARER, _DPOP) or not token:
        raise MeshError(Reason.TOKEN_MALFORMED)
    return scheme, token.strip()
