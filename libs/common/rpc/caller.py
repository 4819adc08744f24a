"""Third stage: identifies the peer and the caller."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any, NamedTuple

from libs.common.auth.identity import Identity
from libs.common.auth.jose import CLOCK_SKEW
from libs.common.auth.peers import peer_of
from libs.common.auth.tokens import TokenVerifier
from libs.common.call_context import Call
from libs.common.errors import MeshError, Reason
from libs.common.rpc.holder_check import HolderCheck
from libs.common.rpc.policy import ANY_PEER, PLATFORM, Access, Policy, Row


class CallerCheck:
    """Identifies the peer by its certificate and the caller by its token; refuses those that the policy row does not
    allow.
    """

    def __init__(
        self, policy: Policy, verifier: TokenVerifier, trust_domain: str, public_origins: Collection[str]
    ) -> None:
        self._policy = {**PLATFORM, **policy}
        self._verifier = verifier
        self._trust_domain = trust_domain
        self._holder_check = HolderCheck(public_origins)
        self._open = OpenStreams(verifier)

    def stays_open(self, method: str) -> bool:
        """Return whether calls of a method are streams without a deadline."""
        return method in self._policy and self._policy[method].deadline is None

    def identifier_of(self, method: str) -> Callable[[Call, Any], Awaitable[None] | None]:
        """Return the function that identifies the caller of a method, or raises to refuse. It returns an awaitable if
        it has to wait.
        """
        row = self._policy.get(method)

        def identify(call: Call, context: Any) -> Awaitable[None] | None:
            # Not auth_context(): that copies the whole certificate chain for every call.
            identities = tuple(context.peer_identities() or ())
            call.peer = peer = peer_of(self._trust_domain, context.peer_identity_key(), identities)
            call.auth_context = context.auth_context
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
                return self._verify(call, context, row, access, scheme)
            self._identify(call, context, row, access, scheme, known)
            return None

        return identify

    async def _verify(self, call: Call, context: Any, row: Row, access: Access, scheme: str) -> None:
        self._identify(call, context, row, access, scheme, await self._verifier.verify(call.token))

    def _identify(self, call: Call, context: Any, row: Row, access: Access, scheme: str, identity: Identity) -> None:
        call.identity = identity
        if identity.confirmation or scheme == _DPOP:
            self._holder_check.check(call, identity, context)
        if not access.scopes <= identity.scopes:
            missing = access.scopes - identity.scopes
            raise MeshError(Reason.SCOPE_MISSING, metadata={"required_scopes": " ".join(sorted(missing))})
        if identity.tenant and not row.admits_tenants:
            raise MeshError(Reason.AUTHORITY_EXCEEDED, metadata={"dimension": "tenant"})
        if self.stays_open(call.method):
            self._open.begin(call)

    def leave(self, call: Call, error: BaseException | None) -> BaseException | None:
        """Forget a stream; return the exception that it ends with."""
        return self._open.end(call, error)


class _Stream(NamedTuple):
    call: Call
    task: asyncio.Task[Any]
    end: asyncio.TimerHandle | None


class OpenStreams:
    """The open streams of callers. A stream ends with TOKEN_REVOKED or TOKEN_EXPIRED when its token does."""

    def __init__(self, verifier: TokenVerifier) -> None:
        self._streams: dict[int, _Stream] = {}
        self._over: dict[int, Reason] = {}
        self._view = verifier.revocations
        if self._view is not None:
            self._view.listen(self._close_revoked)

    def begin(self, call: Call) -> None:
        """Record a stream of the current task."""
        task, name = asyncio.current_task(), id(call)
        assert task is not None
        end: asyncio.TimerHandle | None = None
        if call.identity is not None:
            left = call.identity.expires_at + CLOCK_SKEW - time.time()
            end = task.get_loop().call_later(max(0.0, left), self._close, name, Reason.TOKEN_EXPIRED)
        self._streams[name] = _Stream(call, task, end)

    def end(self, call: Call, error: BaseException | None) -> BaseException | None:
        """Forget a stream; return the exception that it ends with."""
        stream = self._streams.pop(id(call), None)
        if stream is not None and stream.end is not None:
            stream.end.cancel()
        reason = self._over.pop(id(call), None)
        if reason is None:
            return error
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.uncancel() == 0:
            return MeshError(reason)
        return error

    def _close_revoked(self) -> None:
        assert self._view is not None
        for name, (call, _, _) in self._streams.items():
            if call.identity and self._view.refuses(call.identity.token_lineage):
                self._close(name, Reason.TOKEN_REVOKED)

    def _close(self, name: int, reason: Reason) -> None:
        if name not in self._over:
            self._over[name] = reason
            self._streams[name].task.cancel()


_BEARER, _DPOP = "bearer", "dpop"


def _credential(authorization: str) -> tuple[str, str]:
    """Return the scheme and the token. The token itself says what its holder must prove."""
    if not authorization:
        raise MeshError(Reason.UNAUTHENTICATED)
    scheme, _, token = authorization.partition(" ")
    scheme = scheme.lower()
    if scheme not in (_BEARER, _DPOP) or not token:
        raise MeshError(Reason.TOKEN_MALFORMED)
    return scheme, token.strip()
