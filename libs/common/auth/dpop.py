"""Checks that the holder of a token has the key (RFC 9449) or the certificate (RFC 8705) that it is bound to.

Pure, except for the cache of used proofs.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import jwt
from jwt.exceptions import PyJWTError

from libs.common.auth.jose import header_of, payload_of
from libs.common.auth.origins import origin_of
from libs.common.auth.proof_cache import ProofCache
from libs.common.errors import MeshError, Reason
from libs.common.json.canonical import canonical

KEY, CERTIFICATE = "jkt:", "x5t#S256:"
# Asymmetric only: a verifier of symmetric proofs could also make them.
KEY_TYPES = {"ES256": "EC", "EdDSA": "OKP", "RS256": "RSA"}
MAX_PROOF_BYTES = 8_192
# Largest age of a proof, and how far it may lie in the future, because clocks differ.
PROOF_SECONDS = 60.0
SKEW_SECONDS = 5.0
_MEMBERS = {"EC": ("crv", "kty", "x", "y"), "OKP": ("crv", "kty", "x"), "RSA": ("e", "kty", "n")}
_PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
# A larger key makes every check slow, and the sender of a proof chooses its key.
_MIN_RSA_BITS, _MAX_RSA_BITS = 2048, 8192


@dataclass(frozen=True, slots=True)
class Target:
    """The request that a proof must be made for."""

    method: str
    path: str
    origins: Collection[str] | None
    """The origins that callers reach the mesh by, never those that a request names, because its sender chooses them.
    None on a direct connection inside the mesh, where origins are not compared."""


def new_proof_cache() -> ProofCache:
    """Return an empty cache that outlives every proof in it."""
    return ProofCache(PROOF_SECONDS + 2 * SKEW_SECONDS)


def check_proof(
    proof: str, *, token: str, subject: str, thumbprint: str, target: Target, now: float, used: ProofCache
) -> None:
    """Return if the proof is recent, for this request and token, by this key, and not used before.

    Raises TOKEN_PROOF_INVALID, whose metadata names the problem.
    """
    claims, _ = _verified(proof, thumbprint)
    if claims.get("ath") != encoded(hashlib.sha256(token.encode()).digest()):
        raise refused("ath")
    _check_request(claims, thumbprint, subject, target, now, used)


def proven_thumbprint(proof: str, *, target: Target, now: float, used: ProofCache) -> str:
    """Return the thumbprint of the key that made a proof for a request without a token.

    Raises TOKEN_PROOF_INVALID, whose metadata names the problem.
    """
    claims, thumbprint = _verified(proof)
    _check_request(claims, thumbprint, "", target, now, used)
    return thumbprint


def _check_request(
    claims: Mapping[str, Any], thumbprint: str, subject: str, target: Target, now: float, used: ProofCache
) -> None:
    """Return if the claims of a proof are recent, for this request, and not used before."""
    if claims.get("htm") != target.method:
        raise refused("htm")
    if not _same_uri(claims.get("htu"), target):
        raise refused("htu")
    made, name = claims.get("iat"), claims.get("jti")
    if not isinstance(made, int | float) or isinstance(made, bool):
        raise refused("iat")
    if not now - PROOF_SECONDS - SKEW_SECONDS <= made <= now + SKEW_SECONDS:
        raise refused("iat")
    if not isinstance(name, str) or not name:
        raise refused("jti")
    # By key and name together: two holders may use the same name.
    if not used.first_time(hashlib.sha256(f"{thumbprint}\n{name}".encode()).digest(), subject, now):
        raise refused("replay")


def check_certificate(pem: bytes | None, thumbprint: str) -> None:
    """Return if the connection's certificate is the one that the token is bound to. Raises TOKEN_PROOF_INVALID."""
    if not pem or certificate_thumbprint(pem) != thumbprint:
        raise refused("certificate")


def certificate_thumbprint(pem: bytes) -> str:
    """Return the SHA-256 thumbprint of the first certificate in a PEM text."""
    body = pem.partition(b"-----BEGIN CERTIFICATE-----")[2].partition(b"-----END CERTIFICATE-----")[0]
    return encoded(hashlib.sha256(b64decode(b"".join(body.split()))).digest())


def key_thumbprint(jwk: Mapping[str, Any]) -> str:
    """Return the RFC 7638 thumbprint of a public key."""
    required = canonical({name: jwk[name] for name in _MEMBERS[jwk["kty"]]})
    return encoded(hashlib.sha256(required).digest())


def encoded(digest: bytes) -> str:
    """Return a digest as base64url without padding."""
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


def refused(problem: str) -> MeshError:
    """Return the error of a holder who did not prove the key."""
    return MeshError(Reason.TOKEN_PROOF_INVALID, metadata={"problem": problem})


def _verified(proof: str, expected: str | None = None) -> tuple[Mapping[str, Any], str]:
    """Return the claims of a proof, and the thumbprint of the key that signed it, which must be the expected one."""
    if not proof:
        raise refused("missing")
    try:
        header: dict[str, Any] = dict(header_of(proof, max_bytes=MAX_PROOF_BYTES, types=("dpop+jwt",), also=("jwk",)))
        jwk, algorithm = header.get("jwk"), header["alg"]
        if not isinstance(jwk, dict) or jwk.get("kty") != KEY_TYPES[algorithm] or _PRIVATE & jwk.keys():
            raise refused("jwk")
        thumbprint = key_thumbprint(jwk)
        # Before the signature: the work for a key that cannot be the right one is not begun.
        if expected is not None and thumbprint != expected:
            raise refused("key")
        key = jwt.PyJWK.from_dict(jwk, algorithm)
        if jwk["kty"] == "RSA" and not _MIN_RSA_BITS <= key.key.key_size <= _MAX_RSA_BITS:
            raise refused("jwk")
        jwt.api_jws.decode_complete(proof, key, algorithms=[algorithm])
        return payload_of(proof), thumbprint
    except (PyJWTError, ValueError, KeyError, TypeError):
        raise refused("form") from None
    except MeshError as error:
        raise error if error.reason is Reason.TOKEN_PROOF_INVALID else refused("form") from None


def _same_uri(htu: Any, target: Target) -> bool:
    """Compare the proof's URI with the request's; query and fragment do not count."""
    if not isinstance(htu, str):
        return False
    try:
        origin = origin_of(htu)
    except ValueError:
        return False
    return urlsplit(htu).path == target.path and (target.origins is None or origin in target.origins)
