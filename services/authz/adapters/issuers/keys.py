"""Caches the public keys of one external issuer. Keys are fetched on demand, and never taken from a token."""

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

# Keys are refreshed after REFRESH_SECONDS; an unknown key id triggers at most one fetch in REFETCH_SECONDS.
REFRESH_SECONDS, REFETCH_SECONDS = 300.0, 10.0
# If the issuer does not respond, its last keys are used for this long; then its tokens are refused as retryable.
OUTAGE_SECONDS = 3600.0
MAX_KEYS = 64
_KINDS = {"RS256": "RSA", "ES256": "EC", "EdDSA": "OKP"}


class ExternalKeys:
    """The key set of one external issuer."""

    def __init__(self, issuer: str, fetch: Callable[[], Awaitable[bytes]], clock: Clock, log: Log) -> None:
        self._issuer, self._fetch, self._clock, self._log = issuer, fetch, clock, log
        self._keys: list[dict[str, Any]] = []
        self._fetched_at = self._tried_at = float("-inf")
        self._lock = asyncio.Lock()

    async def find(self, kid: str, algorithm: str) -> jwt.PyJWK:
        """Return the key of this id. Raises TOKEN_SIGNATURE_INVALID for an unknown key, and SERVICE_UNAVAILABLE when
        the issuer's keys are not available."""
        if self._age(self._fetched_at) > REFRESH_SECONDS or self._cached(kid, algorithm) is None:
            async with self._lock:
                # Checked again after the wait, so that unknown key ids do not cause many fetches.
                if self._age(self._tried_at) > REFETCH_SECONDS:
                    await self._load()
        if self._age(self._fetched_at) > OUTAGE_SECONDS:
            raise MeshError(Reason.SERVICE_UNAVAILABLE, metadata={"issuer": self._issuer}, retry_after=REFETCH_SECONDS)
        key = self._cached(kid, algorithm)
        if key is None:
            raise MeshError(Reason.TOKEN_SIGNATURE_INVALID)
        return key

    def _age(self, time: float) -> float:
        return self._clock.monotonic() - time

    async def _load(self) -> None:
        self._tried_at = self._clock.monotonic()
        try:
            keys = parse_object(await self._fetch(), max_bytes=MAX_BYTES).get("keys")
            if not isinstance(keys, list) or len(keys) > MAX_KEYS:
                raise DocumentUnavailableError("is not a key set")
        except (DocumentMissingError, DocumentUnavailableError, MeshError) as error:
            self._log.warning("keys of external issuer not fetched", issuer=self._issuer, cause=str(error)[:200])
            return
        self._keys = [key for key in keys if isinstance(key, dict)]
        self._fetched_at = self._tried_at

    def _cached(self, kid: str, algorithm: str) -> jwt.PyJWK | None:
        suitable = [key for key in self._keys if _is_suitable(key, algorithm)]
        named = [key for key in suitable if key.get("kid", "") == kid]
        # The key id is optional for an issuer with one key.
        candidates = named if kid else suitable
        return _load_key(candidates[0], algorithm) if len(candidates) == 1 else None


def _is_suitable(key: dict[str, Any], algorithm: str) -> bool:
    return (
        key.get("kty") == _KINDS[algorithm]
        and key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
        and (algorithm != "ES256" or key.get("crv") == "P-256")
        and (algorithm != "EdDSA" or key.get("crv") == "Ed25519")
    )


def _load_key(key: dict[str, Any], algorithm: str) -> jwt.PyJWK | None:
    try:
        loaded = jwt.PyJWK.from_dict(key, algorithm=algorithm)
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    weak = isinstance(loaded.key, RSAPublicKey) and loaded.key.key_size < 2048
    return None if weak else loaded
