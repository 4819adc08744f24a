"""The tokens of trusted outside issuers (OIDC): verified with that issuer's keys, read by that issuer's mapping."""

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
from services.authz.adapters.issuers.keys import OutsideKeys
from services.authz.adapters.issuers.trusted_issuers import TrustedIssuer
from services.authz.domain.model import OutsideToken

MAX_TOKEN_BYTES = 16_384
MAX_SUBJECT, MAX_DID, MAX_GROUPS = 255, 512, 64
_TYPES = ("jwt", "at+jwt")
# Some issuers name the certificate of their key here. It is not looked at.
_IGNORED = ("x5t", "x5t#S256")


class TrustedIssuersTokens:
    """An OutsideTokens over a list of issuers. What a token says of its own key is never followed."""

    def __init__(self, issuers: Iterable[TrustedIssuer], clock: Clock, log: Log) -> None:
        self._issuers = {
            issuer.issuer: (issuer, OutsideKeys(issuer.issuer, _source(issuer), clock, log)) for issuer in issuers
        }

    async def verify(self, token: str) -> OutsideToken:
        header = header_of(token, max_bytes=MAX_TOKEN_BYTES, types=_TYPES, also=_IGNORED)
        # Not verified yet: it only says whose keys the token must stand up to.
        claimed = payload_of(token).get("iss")
        found = self._issuers.get(claimed) if isinstance(claimed, str) else None
        if found is None:
            raise MeshError(Reason.TOKEN_AUDIENCE_INVALID)
        issuer, keys = found
        if header["alg"] not in issuer.algorithms:
            raise MeshError(Reason.TOKEN_SIGNATURE_INVALID)
        key = await keys.find(header.get("kid", ""), header["alg"])
        return _read(_verified(token, key, issuer, header["alg"]), issuer)


def _source(issuer: TrustedIssuer) -> Callable[[], Awaitable[bytes]]:
    if "://" in issuer.jwks:
        documents = HttpsDocuments(issuer.ca)
        return lambda: documents.fetch(issuer.jwks)
    return lambda: asyncio.to_thread(_read_file, Path(issuer.jwks))


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DocumentUnavailableError(type(error).__name__) from error


def _verified(token: str, key: jwt.PyJWK, issuer: TrustedIssuer, algorithm: str) -> Mapping[str, Any]:
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


def _read(claims: Mapping[str, Any], issuer: TrustedIssuer) -> OutsideToken:
    subject = claims.get(issuer.subject_claim)
    tenant = claims.get(issuer.tenant_claim) if issuer.tenant_claim else issuer.tenant
    groups = claims.get(issuer.groups_claim, []) if issuer.groups_claim else []
    if not isinstance(subject, str) or not 1 <= len(subject) <= MAX_SUBJECT:
        raise MeshError(Reason.TOKEN_MALFORMED)
    if not isinstance(tenant, str) or len(tenant) > 128 or (issuer.tenant_claim and not tenant):
        # A token without its tenant must not become one of the tenant that has no name.
        raise MeshError(Reason.TOKEN_MALFORMED)
    if not isinstance(groups, list):
        raise MeshError(Reason.TOKEN_MALFORMED)
    did = issuer.subject_did + _escaped(subject)
    if len(did) > MAX_DID:
        raise MeshError(Reason.TOKEN_MALFORMED)
    taken = sorted({group for group in groups if isinstance(group, str)} & issuer.groups)
    return OutsideToken(did, float(claims["exp"]), tenant, tuple(taken[:MAX_GROUPS]), issuer.grant)


def _escaped(subject: str) -> str:
    """Write a subject with the letters of a DID, so that different subjects stay different ones."""
    return quote(subject, safe="").replace("~", "%7E")
