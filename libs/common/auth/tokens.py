"""Verifies capability tokens: signature, issuer, audience, time, lifetime.

Verifying RS256 costs more than the rest of a warm call, so verified tokens are cached by their hash. The cache is
bounded, never outlives a token, and is cleared when the keys change.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import jwt
import orjson

from libs.common.auth.claims import identity_of
from libs.common.auth.identity import Identity, lineage_of
from libs.common.auth.jose import ALGORITHMS, CLOCK_SKEW, MAX_TOKEN_BYTES, header_of, payload_of
from libs.common.auth.revocations import RevocationView
from libs.common.errors import MeshError, Reason
from libs.common.runtime.bounded_cache import BoundedCache

__all__ = ["ALGORITHMS", "CLOCK_SKEW", "TokenVerifier", "identity_of"]

# A day, as in the settings.
MAX_LIFETIME = 86_400.0


class TokenVerifier:
    """Turns a token into an identity, or raises the precise reason for its refusal."""

    def __init__(
        self,
        fetch_jwks: Callable[[], Awaitable[bytes]],
        *,
        issuer: str,
        audience: str,
        max_lifetime: float = MAX_LIFETIME,
        remember: int = 10_000,
        refetch_seconds: float = 2.0,
        refresh_seconds: float = 30.0,
        revocations: RevocationView | None = None,
        second_opinion: Callable[[str, bytes], Awaitable[None]] | None = None,
    ) -> None:
        """`revocations` is checked for every token, cached or not; `second_opinion` is asked while it cannot be
        trusted.
        """
        self._fetch = fetch_jwks
        self._issuer, self._audience, self._max_lifetime = issuer, audience, max_lifetime
        self._refetch_seconds = refetch_seconds
        self._refresh_seconds = refresh_seconds
        self._refreshing: asyncio.Task[None] | None = None
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_at = float("-inf")
        self._lock = asyncio.Lock()
        self._known: BoundedCache[bytes, Identity] = BoundedCache(remember)
        self.revocations, self._second_opinion = revocations, second_opinion

    async def start(self) -> None:
        """Start following revocations, if the verifier does."""

    async def stop(self) -> None:
        """Stop following."""

    def known(self, token: str) -> Identity | None:
        """Return the identity of a cached token that still holds, else None: then call `verify`.

        Never waits, because it is called with every call.
        """
        if time.monotonic() - self._fetched_at > self._refresh_seconds:
            return None
        known = self._known.get(hashlib.sha256(token.encode()).digest())
        if known is None or known.expires_at + CLOCK_SKEW <= time.time():
            return None
        return known if self.revocations is None or self.revocations.clears(known.token_lineage) else None

    async def verify(self, token: str) -> Identity:
        """Return the identity behind a token.

        Raises TOKEN_MALFORMED, TOKEN_SIGNATURE_INVALID, TOKEN_AUDIENCE_INVALID, TOKEN_EXPIRED or TOKEN_REVOKED;
        SERVICE_UNAVAILABLE when keys or revocations are unknown.
        """
        self._refresh_in_the_background()
        key = hashlib.sha256(token.encode()).digest()
        known = self._known.get(key)
        if known is not None:
            if known.expires_at + CLOCK_SKEW > time.time():
                if self.revocations is not None and not self.revocations.clears(known.token_lineage):
                    await self._check_revocation(known, token, key)
                return known
            del self._known[key]
            raise MeshError(Reason.TOKEN_EXPIRED)
        identity = identity_of(*await self._claims(token))
        self._refuse_long_lived(identity)
        identity = replace(identity, token_lineage=lineage_of(identity))
        self._known.put(key, identity)
        if self.revocations is not None and not self.revocations.clears(identity.token_lineage):
            await self._check_revocation(identity, token, key)
        return identity

    def _refuse_long_lived(self, identity: Identity) -> None:
        """Refuse a token that holds longer than any that the issuer mints, from when it says it was made and from now:
        revocations are kept no longer than that."""
        made = min(identity.issued_at, time.time())
        if identity.expires_at - made > self._max_lifetime + CLOCK_SKEW:
            raise MeshError(Reason.TOKEN_MALFORMED)

    async def _check_revocation(self, identity: Identity, token: str, key: bytes) -> None:
        """Refuse a token that is revoked, or that cannot be shown not to be."""
        assert self.revocations is not None
        if self.revocations.refuses(identity.token_lineage):
            raise MeshError(Reason.TOKEN_REVOKED)
        if self._second_opinion is None:
            message = "revocations are unknown at the moment"
            raise MeshError(Reason.SERVICE_UNAVAILABLE, message=message, retry_after=1.0)
        await self._second_opinion(token, key)

    async def refresh(self) -> None:
        """Fetch the keys now; clear the cache if they changed."""
        async with self._lock:
            await self._load()

    def _refresh_in_the_background(self) -> None:
        """Refresh old keys in the background, so that withdrawn keys stop working without a call waiting for it."""
        age = time.monotonic() - self._fetched_at
        if self._keys and age > self._refresh_seconds and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = asyncio.ensure_future(self._refresh_quietly())

    async def _refresh_quietly(self) -> None:
        # While the issuer is unreachable, its last keys stay trusted.
        with contextlib.suppress(MeshError):
            await self.refresh()

    async def _claims(self, token: str) -> tuple[Mapping[str, Any], str]:
        """Return the verified claims, and the id of the key that signed them."""
        header = header_of(token, max_bytes=MAX_TOKEN_BYTES)
        kid = header.get("kid", "")
        key = await self._key(kid)
        if header["alg"] != key.algorithm_name:
            raise MeshError(Reason.TOKEN_SIGNATURE_INVALID)
        # Parsed strictly here before the library parses it leniently.
        claims = payload_of(token)
        self._verify_signature_and_time(token, key)
        return claims, kid

    def _verify_signature_and_time(self, token: str, key: jwt.PyJWK) -> None:
        try:
            jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                issuer=self._issuer,
                audience=self._audience,
                leeway=CLOCK_SKEW,
                options={"require": ["exp", "iat", "iss", "aud", "sub", "jti"]},
            )
        except jwt.ExpiredSignatureError:
            raise MeshError(Reason.TOKEN_EXPIRED) from None
        except (jwt.InvalidAudienceError, jwt.InvalidIssuerError):
            raise MeshError(Reason.TOKEN_AUDIENCE_INVALID) from None
        except (jwt.InvalidSignatureError, jwt.InvalidAlgorithmError, jwt.InvalidKeyError):
            raise MeshError(Reason.TOKEN_SIGNATURE_INVALID) from None
        except jwt.InvalidTokenError:
            raise MeshError(Reason.TOKEN_MALFORMED) from None

    async def _key(self, kid: str) -> jwt.PyJWK:
        if kid not in self._keys:
            async with self._lock:
                # An unknown key may be new, but made-up key ids must not cause a flood of fetches.
                if kid not in self._keys and time.monotonic() - self._fetched_at >= self._refetch_seconds:
                    await self._load()
        try:
            return self._keys[kid]
        except KeyError:
            raise MeshError(Reason.TOKEN_SIGNATURE_INVALID) from None

    async def _load(self) -> None:
        fetched = orjson.loads(await self._fetch())["keys"]
        keys = {k["kid"]: jwt.PyJWK.from_dict(k) for k in fetched if k.get("alg") in ALGORITHMS}
        if keys.keys() != self._keys.keys():
            self._known.clear()
        self._keys, self._fetched_at = keys, time.monotonic()
