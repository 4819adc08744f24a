"""The public keys of one outside issuer: fetched when needed, kept through an outage, never taken from a token."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import parse_object
from libs.common.runtime.clock import Clock
from libs.common.telemetry.log import Log
from services.authz.adapters.issuers.https_documents import MAX_BYTES, DocumentMissingError, DocumentUnavailableError

# Keys are looked at again after this long, and at most this often for a key id that is not known.
REFRESH_SECONDS, REFETCH_SECONDS = 300.0, 10.0
# An issuer that does not answer is believed on its last keys for this long; then its tokens are refused, to be tried again.
OUTAGE_SECONDS = 3600.0
MAX_KEYS = 64
_KINDS = {"RS256": "RSA", "ES256": "EC", "EdDSA": "OKP"}


class OutsideKeys:
    """The keys of one issuer."""

    def __init__(self, issuer: str, fetch: Callable[[], Awaitable[bytes]], clock: Clock, log: Log) -> None:
        self._issuer, self._fetch, self._clock, self._log = issuer, fetch, clock, log
        self._keys: list[dict[str, Any]] = []
        self._fetched_at = self._tried_at = float("-inf")
        self._lock = asyncio.Lock()

    async def find(self, kid: str, algorithm: str) -> jwt.PyJWK:
        """Return the key of this id. Raises TOKEN_SIGNATURE_INVALID when there is none, SERVICE_UNAVAILABLE when nobody knows."""
        if self._age(self._fetched_at) > REFRESH_SECONDS or self._found(kid, algorithm) is None:
            async with self._lock:
                # Whoever waited finds the work done; made-up key ids do not become a flood of fetches.
                if self._age(self._tried_at) > REFETCH_SECONDS:
                    await self._load()
        if self._age(self._fetched_at) > OUTAGE_SECONDS:
            raise MeshError(Reason.SERVICE_UNAVAILABLE, metadata={"issuer": self._issuer}, retry_after=REFETCH_SECONDS)
        found = self._found(kid, algorithm)
        if found is None:
            raise MeshError(Reason.TOKEN_SIGNATURE_INVALID)
        return found

    def _age(self, moment: float) -> float:
        return self._clock.monotonic() - moment

    async def _load(self) -> None:
        self._tried_at = self._clock.monotonic()
        try:
            keys = parse_object(await self._fetch(), max_bytes=MAX_BYTES).get("keys")
            if not isinstance(keys, list) or len(keys) > MAX_KEYS:
                raise DocumentUnavailableError("is not a key set")
        except (DocumentMissingError, DocumentUnavailableError, MeshError) as error:
            self._log.warning("keys of an outside issuer not fetched", issuer=self._issuer, cause=str(error)[:200])
            return
        self._keys = [key for key in keys if isinstance(key, dict)]
        self._fetched_at = self._tried_at

    def _found(self, kid: str, algorithm: str) -> jwt.PyJWK | None:
        fitting = [key for key in self._keys if _fits(key, algorithm)]
        named = [key for key in fitting if key.get("kid", "") == kid]
        # An issuer with one key need not name it.
        chosen = named if kid else fitting
        return _usable(chosen[0], algorithm) if len(chosen) == 1 else None


def _fits(key: dict[str, Any], algorithm: str) -> bool:
    return (
        key.get("kty") == _KINDS[algorithm]
        and key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
        and (algorithm != "ES256" or key.get("crv") == "P-256")
        and (algorithm != "EdDSA" or key.get("crv") == "Ed25519")
    )


def _usable(key: dict[str, Any], algorithm: str) -> jwt.PyJWK | None:
    try:
        found = jwt.PyJWK.from_dict(key, algorithm=algorithm)
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    weak = isinstance(found.key, RSAPublicKey) and found.key.key_size < 2048
    return None if weak else found
