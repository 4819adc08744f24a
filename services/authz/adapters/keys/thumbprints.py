"""Computes the thumbprints of public keys (RFC 7638) and the base64url encodings of JWKs."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Mapping

from libs.common.json.canonical import canonical

_REQUIRED = {"RSA": ("e", "kty", "n"), "EC": ("crv", "kty", "x", "y"), "OKP": ("crv", "kty", "x")}


def jwk_thumbprint(jwk: Mapping[str, object]) -> str:
    """Return the SHA-256 thumbprint of a public JWK in base64url. Raises ValueError for other objects."""
    required = _REQUIRED.get(str(jwk.get("kty")))
    if required is None or not all(isinstance(jwk.get(name), str) for name in required):
        raise ValueError("not a public key")
    return base64url(hashlib.sha256(canonical({name: jwk[name] for name in required})).digest())


def base64url(octets: bytes) -> str:
    """Encode bytes in base64url without padding."""
    return urlsafe_b64encode(octets).rstrip(b"=").decode()


def number(value: int) -> str:
    """Encode an integer like a JWK member (Base64urlUInt)."""
    return base64url(value.to_bytes((value.bit_length() + 7) // 8, "big"))
