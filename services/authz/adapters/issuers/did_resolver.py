"""The DidResolver of a mesh: did:key by its own letters, did:web of the mesh itself by the operator's word, others by documents."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from libs.common.runtime.clock import Clock
from services.authz.adapters.issuers.did_documents import DidDocuments
from services.authz.adapters.issuers.did_key import PREFIX as DID_KEY
from services.authz.adapters.issuers.did_key import jwk_of, thumbprint_of
from services.authz.adapters.issuers.https_documents import DocumentMissingError, DocumentUnavailableError
from services.authz.adapters.keys.thumbprints import jwk_thumbprint
from services.authz.domain.errors import did_not_found, did_unanswered
from services.authz.domain.model import ResolvedDid

DID_WEB = "did:web:"
KEEP_SECONDS, KEEP_MISSING_SECONDS, MAX_KEPT = 300.0, 10.0, 4096
# A host name, with a port that the method writes as %3A; then path segments of ordinary letters.
_WEB = re.compile(r"did:web:[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(%3A[0-9]{1,5})?(:[A-Za-z0-9._%-]+)*")
_MAX_KEYS = 16
# Beside RSA, whose keys have no curve.
_PROVING = frozenset({("EC", "P-256"), ("OKP", "Ed25519")})


class MeshDids:
    """Resolves what this mesh can vouch for. Answers are kept for five minutes, a no for ten seconds."""

    def __init__(self, trust_domain: str, documents: DidDocuments | None, clock: Clock) -> None:
        self._own, self._documents, self._clock = DID_WEB + trust_domain, documents, clock
        self._kept: dict[str, tuple[float, ResolvedDid | None]] = {}

    async def resolve(self, did: str) -> ResolvedDid:
        if did.startswith(DID_KEY):
            return _from_letters(did)
        if not _WEB.fullmatch(did):
            raise did_not_found(did)
        if did == self._own or did.startswith(self._own + ":"):
            # Names under the mesh's own domain are the operator's to give.
            return ResolvedDid(did)
        if self._documents is None:
            raise did_not_found(did)
        found = await self._remembered(did, self._documents)
        if found is None:
            raise did_not_found(did)
        return found

    async def _remembered(self, did: str, documents: DidDocuments) -> ResolvedDid | None:
        now = self._clock.monotonic()
        until, known = self._kept.get(did, (0.0, None))
        if until > now:
            return known
        try:
            found: ResolvedDid | None = ResolvedDid(did, _thumbprints(await documents.find(did)))
        except DocumentMissingError:
            found = None
        except DocumentUnavailableError as error:
            raise did_unanswered(did) from error
        if len(self._kept) >= MAX_KEPT:
            self._kept.clear()
        self._kept[did] = (now + (KEEP_SECONDS if found else KEEP_MISSING_SECONDS), found)
        return found


def _from_letters(did: str) -> ResolvedDid:
    try:
        return ResolvedDid(did, (thumbprint_of(did),) if _proves(jwk_of(did)) else ())
    except ValueError:
        raise did_not_found(did) from None


def _thumbprints(document: dict[str, Any]) -> tuple[str, ...]:
    """Return the thumbprints of the keys that the subject authenticates by; keys that prove nothing here are left out."""
    methods = {method["id"]: method for method in _objects(document.get("verificationMethod")) if "id" in method}
    found: dict[str, None] = {}
    for entry in _listed(document.get("authentication")):
        method = methods.get(entry) if isinstance(entry, str) else entry
        try:
            key = _key(method or {})
            if _proves(key):
                found[jwk_thumbprint(key)] = None
        except (ValueError, TypeError, AttributeError):
            continue
    return tuple(found)


def _key(method: dict[str, Any]) -> Mapping[str, Any]:
    if "publicKeyMultibase" in method:
        return jwk_of(DID_KEY + str(method["publicKeyMultibase"]))
    return method.get("publicKeyJwk", {})  # type: ignore[no-any-return]


def _proves(key: Mapping[str, Any]) -> bool:
    """Say whether a proof by this key is one that the mesh takes; a token that is bound to another could be used by nobody."""
    return key.get("kty") == "RSA" or (key.get("kty"), key.get("crv")) in _PROVING


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    return (item for item in _listed(value) if isinstance(item, dict) and isinstance(item.get("id"), str))


def _listed(value: Any) -> list[Any]:
    return value[:_MAX_KEYS] if isinstance(value, list) else []
