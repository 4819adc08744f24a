"""Verifies tokens of trusted external issuers (OIDC) and maps their claims by the issuer's configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jwt

from libs.common.auth.jose import CLOCK_SKEW, header_of, payload_of
from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import Clock
from libs.common.telemetry.log import Log
from services.authz.adapters.issuers.https_documents import DocumentUnavailableError, HttpsDocuments
from services.authz.adapters.issuers.keys import ExternalKeys
from services.authz.adapters.issuers.trusted_issuers import TrustedIssuer
from services.authz.domain.model import ExternalToken

MAX_TOKEN_BYTES = 16_384
MAX_SUBJECT, MAX_DID, MAX_GROUPS = 255, 512, 64
_TYPES = ("jwt", "at+jwt")
# Certificate thumbprints that some issuers send. They are accepted and not used.
_IGNORED_HEADERS = ("x5t", "x5t#S256")


class TrustedIssuerVerifier:
    """An ExternalTokenVerifier for a list of issuers. Keys that a token itself refers to are never used."""

    def __init__(self, issuers: Iterable[TrustedIssuer], clock: Clock, log: Log) -> None:
        self._issuers = {
            issuer.issuer: (issuer, ExternalKeys(issuer.issuer, _key_source(issuer), clock, log)) for issuer in issuers
        }

    async def verify(self, token: str) -> ExternalToken:
        header = header_of(token, max_bytes=MAX_TOKEN_BYTES, types=_TYPES, also=_IGNORED_HEADERS)
        # Not verified yet: only selects the keys that the token is verified with.
        claimed = payload_of(token).get("iss")
        trusted = self._issuers.get(claimed) if isinstance(claimed, str) else None
        if trusted is None:
            raise MeshError(Reason.TOKEN_AUDIENCE_INVALID)
        issuer, keys = trusted
        if header["alg"] not in issuer.algorithms:
            raise MeshError(Reason.TOKEN_SIGNATURE_INVALID)
        key = await keys.find(header.get("kid", ""), header["alg"])
        return _map_claims(_verify(token, key, issuer, header["alg"]), issuer)


def _key_source(issuer: TrustedIssuer) -> Callable[[], Awaitable[bytes]]:
    if "://" in issuer.jwks:
        documents = HttpsDocuments(issuer.ca)
        return lambda: documents.fetch(issuer.jwks)
    return lambda: asyncio.to_thread(_read_file, Path(issuer.jwks))


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DocumentUnavailableError(type(error).__name__) from error


def _verify(token: str, key: jwt.PyJWK, issuer: TrustedIssuer, algorithm: str) -> Mapping[str, Any]:
    try:
        return jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            issuer=issuer.issuer,
            audience=issuer.audience,
            leeway=CLOCK_SKEW,
            options={"require": ["exp", "iat", "iss", "aud"], "verify_sub": False},
        )
    except jwt.ExpiredSignatureError:
        raise MeshError(Reason.TOKEN_EXPIRED) from None
    except (jwt.InvalidAudienceError, jwt.InvalidIssuerError):
        raise MeshError(Reason.TOKEN_AUDIENCE_INVALID) from None
    except (jwt.InvalidSignatureError, jwt.InvalidAlgorithmError, jwt.InvalidKeyError):
        raise MeshError(Reason.TOKEN_SIGNATURE_INVALID) from None
    except (jwt.InvalidTokenError, ValueError, OverflowError):
        raise MeshError(Reason.TOKEN_MALFORMED) from None


def _map_claims(claims: Mapping[str, Any], issuer: TrustedIssuer) -> ExternalToken:
    subject = claims.get(issuer.subject_claim)
    tenant = claims.get(issuer.tenant_claim) if issuer.tenant_claim else issuer.tenant
    groups = claims.get(issuer.groups_claim, []) if issuer.groups_claim else []
    if not isinstance(subject, str) or not 1 <= len(subject) <= MAX_SUBJECT:
        raise MeshError(Reason.TOKEN_MALFORMED)
    if not isinstance(tenant, str) or len(tenant) > 128 or (issuer.tenant_claim and not tenant):
        # A token without a tenant claim must not be mapped to the empty tenant.
        raise MeshError(Reason.TOKEN_MALFORMED)
    if not isinstance(groups, list):
        raise MeshError(Reason.TOKEN_MALFORMED)
    did = issuer.subject_did + _escape_subject(subject)
    if len(did) > MAX_DID:
        raise MeshError(Reason.TOKEN_MALFORMED)
    accepted = sorted({group for group in groups if isinstance(group, str)} & issuer.groups)
    return ExternalToken(did, float(claims["exp"]), tenant, tuple(accepted[:MAX_GROUPS]), issuer.grant)


def _escape_subject(subject: str) -> str:
    """Escape a subject to the characters of a DID, injectively."""
    return quote(subject, safe="").replace("~", "%7E")
