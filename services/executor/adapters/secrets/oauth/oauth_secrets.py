"""A store whose OAuth 2 clients are replaced by the tokens that they are granted, which are kept until they end."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

from libs.common.runtime.bounded_cache import BoundedCache
from libs.common.runtime.single_flight import SingleFlight
from libs.common.secret_store.secret import GrantType, OAuthClient, Secret
from libs.common.telemetry.log import Log
from services.executor.adapters.secrets.oauth.access_token import (
    AccessToken,
    TokenRefusedError,
    TokenUnavailableError,
)
from services.executor.domain import errors
from services.executor.domain.ports import SecretStore

_TOKENS = 4096
# A token is not used in the last part of its time, which a call may outlast.
_UNUSED_SHARE = 0.2
# How long a client that got no token does not ask again.
_PAUSE_SECONDS = 1.0
_KEY = os.urandom(32)

RequestToken = Callable[[OAuthClient, str, str], Awaitable[AccessToken]]


class CallerAssertions(Protocol):
    """Statements about the caller of the current call, signed by authz for one authorization server."""

    def caller_id(self) -> str:
        """Return what differs between callers; empty where no call is served."""
        ...

    async def issue(self, audience: str) -> str:
        """Return the statement. Raises the errors of authz."""
        ...


@dataclass(frozen=True, slots=True)
class _Kept:
    """A token, or the reason why there is none."""

    until: float
    token: AccessToken | None
    refused: bool = False


class OAuthSecrets:
    """Implements SecretStore."""

    def __init__(
        self,
        store: SecretStore,
        request: RequestToken,
        assertions: CallerAssertions,
        log: Log,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._request, self._assertions, self._log, self._now = store, request, assertions, log, now
        self._kept: BoundedCache[bytes, _Kept] = BoundedCache(_TOKENS)
        self._requests: SingleFlight[bytes, _Kept] = SingleFlight()

    async def get(self, name: str, tenant: str) -> Secret:
        """Implement `SecretStore.get`. Raises CREDENTIAL_EXPIRED, too, if the client gets no token."""
        secret = await self._store.get(name, tenant)
        client = secret.binding.oauth
        if client is None:
            return secret
        key = self._key(secret, client)
        kept = self._kept.get(key)
        if kept is None or self._now() >= kept.until:
            # In the context of the call: the assertion is about its caller.
            kept = await self._requests.run(key, lambda: self._ask(key, secret, client), context=copy_context())
        if kept.token is not None:
            return Secret(name, kept.token.value, msgspec.structs.replace(secret.binding, oauth=None), secret.tenant)
        raise errors.credential_not_granted(name) if kept.refused else errors.secret_store_unavailable(name)

    async def reject(self, name: str, tenant: str) -> None:
        """Implement `SecretStore.reject`."""
        secret = await self._store.get(name, tenant)
        if secret.binding.oauth is not None:
            kept = self._kept.get(key := self._key(secret, secret.binding.oauth))
            if kept is not None and kept.token is not None:
                # Not at once: a service that refuses everything must not make every call ask for a token.
                self._kept.put(key, replace(kept, until=min(kept.until, self._now() + _PAUSE_SECONDS)))

    def _key(self, secret: Secret, client: OAuthClient) -> bytes:
        """Return the key of the client's token: another value, client or caller has another token."""
        caller = ""
        if client.grant is GrantType.TOKEN_EXCHANGE and not (caller := self._assertions.caller_id()):
            raise errors.credential_needs_caller(secret.name)
        parts = (secret.name, secret.tenant, secret.value, client, caller)
        return hashlib.blake2b(msgspec.msgpack.encode(parts), key=_KEY).digest()

    async def _ask(self, key: bytes, secret: Secret, client: OAuthClient) -> _Kept:
        now = self._now()
        try:
            by_exchange = client.grant is GrantType.TOKEN_EXCHANGE
            assertion = await self._assertions.issue(client.token_url) if by_exchange else ""
            token = await self._request(client, secret.value, assertion)
        except TokenRefusedError as error:
            self._log.warning("no token is granted", secret=secret.name, code=error.code)
            return self._kept.put(key, _Kept(now + _PAUSE_SECONDS, None, refused=True))
        except TokenUnavailableError as error:
            self._log.warning("no token can be asked for", secret=secret.name, cause=error.cause)
            return self._kept.put(key, _Kept(now + _PAUSE_SECONDS, None))
        return self._kept.put(key, _Kept(now + token.lifetime * (1 - _UNUSED_SHARE), token))
