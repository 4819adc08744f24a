"""Resolves DIDs: did:key from itself, did:web of the mesh's own domain without a document, other did:web by
document."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from libs.common.runtime.bounded_cache import BoundedCache
from libs.common.runtime.clock import Clock
from services.authz.adapters.issuers.did_documents import DidDocuments
from services.authz.adapters.issuers.did_key import PREFIX as DID_KEY
from services.authz.adapters.issuers.did_key import jwk_of, thumbprint_of
from services.authz.adapters.issuers.https_documents import DocumentMissingError, DocumentUnavailableError
from services.authz.adapters.keys.thumbprints import jwk_thumbprint
from services.authz.domain.errors import did_not_found, did_resolver_unavailable
from services.authz.domain.model import ResolvedDid

DID_WEB = "did:web:"
CACHE_SECONDS, MISSING_CACHE_SECONDS, CACHE_SIZE = 300.0, 10.0, 4096
# A host name with an optional port after %3A, then path segments.
_WEB = re.compile(r"did:web:[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(%3A[0-9]{1,5})?(:[A-Za-z0-9._%-]+)*")
_MAX_KEYS = 16
# Key types and curves of DPoP proofs, besides RSA.
_PROOF_CURVES = frozenset({("EC", "P-256"), ("OKP", "Ed25519")})


class MeshDidResolver:
    """Resolves DIDs with a cache: found ones for five minutes, missing ones for ten seconds."""

    def __init__(self, trust_domain: str, documents: DidDocuments | None, clock: Clock) -> None:
        self._own, self._documents, self._clock = DID_WEB + trust_domain, documents, clock
        self._cache = BoundedCache[str, tuple[float, ResolvedDid | None]](CACHE_SIZE)

    async def resolve(self, did: str) -> ResolvedDid:
        if did.startswith(DID_KEY):
            return _resolve_did_key(did)
        if not _WEB.fullmatch(did):
            raise did_not_found(did)
        if did == self._own or did.startswith(self._own + ":"):
            # The operator assigns the names under the mesh's own domain.
            return ResolvedDid(did)
        if self._documents is None:
            raise did_not_found(did)
        resolved = await self._resolve_by_document(did, self._documents)
        if resolved is None:
            raise did_not_found(did)
        return resolved

    async def _resolve_by_document(self, did: str, documents: DidDocuments) -> ResolvedDid | None:
        now = self._clock.monotonic()
        expires_at, cached = self._cache.get(did, (0.0, None))
        if expires_at > now:
            return cached
        try:
            resolved: ResolvedDid | None = ResolvedDid(did, _thumbprints(await documents.find(did)))
        except DocumentMissingError:
            resolved = None
        except DocumentUnavailableError as error:
            raise did_resolver_unavailable(did) from error
        self._cache.put(did, (now + (CACHE_SECONDS if resolved else MISSING_CACHE_SECONDS), resolved))
        return resolved


def _resolve_did_key(did: str) -> ResolvedDid:
    try:
        return ResolvedDid(did, (thumbprint_of(did),) if _can_prove(jwk_of(did)) else ())
    except ValueError:
        raise did_not_found(did) from None


def _thumbprints(document: dict[str, Any]) -> tuple[str, ...]:
    """Return the thumbprints of the authentication keys that can make DPoP proofs."""
    methods = {method["id"]: method for method in _objects(document.get("verificationMethod")) if "id" in method}
    thumbprints: dict[str, None] = {}
    for entry in _list(document.get("authentication")):
        method = methods.get(entry) if isinstance(entry, str) else entry
        try:
            key = _key(method or {})
            if _can_prove(key):
                thumbprints[jwk_thumbprint(key)] = None
        except (ValueError, TypeError, AttributeError):
            continue
    return tuple(thumbprints)


def _key(method: dict[str, Any]) -> Mapping[str, Any]:
    if "publicKeyMultibase" in method:
        return jwk_of(DID_KEY + str(method["publicKeyMultibase"]))
    return method.get("publicKeyJwk", {})  # type: ignore[no-any-return]


def _can_prove(key: Mapping[str, Any]) -> bool:
    """Return whether the mesh accepts DPoP proofs of this key. A token bound to any other key would be unusable."""
    return key.get("kty") == "RSA" or (key.get("kty"), key.get("crv")) in _PROOF_CURVES


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    return (item for item in _list(value) if isinstance(item, dict) and isinstance(item.get("id"), str))


def _list(value: Any) -> list[Any]:
    return value[:_MAX_KEYS] if isinstance(value, list) else []
