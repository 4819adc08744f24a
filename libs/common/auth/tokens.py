"""Verification of capability tokens: signature, issuer, audience, time. Signed once, verified in every process.

Verifying RS256 costs more than the rest of a warm call together, so a verified token is remembered by its hash. The
memory is bounded, never outlives the token, and is dropped when the keys change.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import jwt
import orjson

from libs.common.auth.identity import Grant, Identity
from libs.common.errors import MeshError, Reason
from libs.common.rpc.limits import MAX_TOKEN_BYTES

ALGORITHMS = ["RS256", "ES256", "EdDSA"]
# Clocks of honest machines differ; a token may be this much too young or too old.
CLOCK_SKEW = 5.0
_DID = re.compile(r"^did:[a-z0-9]+:[A-Za-z0-9._:%-]+$")


class TokenVerifier:
    """Turns a bearer token into an identity, or says precisely why not."""

    def __init__(
        self,
        fetch_jwks: Callable[[], Awaitable[bytes]],
        *,
        issuer: str,
        audience: str,
        remember: int = 10_000,
        refetch_seconds: float = 2.0,
        refresh_seconds: float = 30.0,
    ) -> None:
        self._fetch = fetch_jwks
        self._issuer, self._audience = issuer, audience
        self._remember, self._refetch_seconds = remember, refetch_seconds
        self._refresh_seconds = refresh_seconds
        self._refreshing: asyncio.Task[None] | None = None
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_at = float("-inf")
        self._lock = asyncio.Lock()
        self._known: dict[bytes, Identity] = {}

    async def verify(self, token: str) -> Identity:
        """Return the identity behind a token. Raises TOKEN_MALFORMED, TOKEN_SIGNATURE_INVALID, TOKEN_AUDIENCE_INVALID or
        TOKEN_EXPIRED; SERVICE_UNAVAILABLE when the keys cannot be had."""
        self._refresh_in_the_background()
        key = hashlib.sha256(token.encode()).digest()
        known = self._known.get(key)
        if known is not None:
            if known.expires_at + CLOCK_SKEW > time.time():
                return known
            del self._known[key]
            raise MeshError(Reason.TOKEN_EXPIRED)
        identity = identity_of(await self._claims(token))
        if len(self._known) >= self._remember:
            self._known.clear()
        self._known[key] = identity
        return identity

    async def refresh(self) -> None:
        """Fetch the keys now and forget every token if they changed."""
        async with self._lock:
            await self._load()

    def _refresh_in_the_background(self) -> None:
        """A key that the issuer no longer publishes must stop working here too, without a call having to wait for that."""
        age = time.monotonic() - self._fetched_at
        if self._keys and age > self._refresh_seconds and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = asyncio.ensure_future(self._refresh_quietly())

    async def _refresh_quietly(self) -> None:
        # The issuer being away is no reason to stop trusting the keys it last published.
        with contextlib.suppress(MeshError):
            await self.refresh()

    async def _claims(self, token: str) -> Mapping[str, Any]:
        if len(token) > MAX_TOKEN_BYTES:
            raise MeshError(Reason.TOKEN_MALFORMED)
        try:
            header = jwt.get_unverified_header(token)
        except jwt.InvalidTokenError:
            raise MeshError(Reason.TOKEN_MALFORMED) from None
        if header.get("alg") not in ALGORITHMS:
            raise MeshError(Reason.TOKEN_SIGNATURE_INVALID)
        return self._decode(token, await self._key(str(header.get("kid", ""))))

    def _decode(self, token: str, key: jwt.PyJWK) -> Mapping[str, Any]:
        required = ["exp", "iat", "iss", "aud", "sub", "jti"]
        try:
            return jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                issuer=self._issuer,
                audience=self._audience,
                leeway=CLOCK_SKEW,
                options={"require": required},
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
                # An unknown key may be a new one; an attacker's made-up key ids must not become a flood of fetches.
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


def identity_of(claims: Mapping[str, Any]) -> Identity:
    """Read verified claims; claims of the wrong shape raise TOKEN_MALFORMED."""
    try:
        if not _DID.match(claims["sub"]):
            raise MeshError(Reason.TOKEN_MALFORMED, message="the subject is not a DID")
        return Identity(
            subject=claims["sub"],
            token_id=str(claims["jti"]),
            expires_at=float(claims["exp"]),
            tier=str(claims.get("tier", "user")),
            agent=str(claims.get("agent", "")),
            tenant=str(claims.get("tenant", "")),
            scopes=frozenset(str(claims.get("scope", "")).split()),
            tools=tuple(Grant(str(t["tool"]), str(t.get("version", ""))) for t in claims.get("tools", [])),
            groups=tuple(str(g) for g in claims.get("groups", [])),
            trust_level=int(claims.get("trust", 0)),
            chain=tuple((str(a["sub"]), str(a["jti"])) for a in claims.get("act", [])),
            session_id=str(claims.get("session", "")),
            claims=dict(claims),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        raise MeshError(Reason.TOKEN_MALFORMED) from None
