"""Parses the outer form of a signed token (RFC 7515, RFC 7519) strictly: no embedded key, no repeated name."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from collections.abc import Collection
from typing import Any

from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import parse_object

ALGORITHMS = ["RS256", "ES256", "EdDSA"]
# Clock difference that is tolerated, in seconds.
CLOCK_SKEW = 5.0
MAX_HEADER_BYTES = 2048
MAX_TOKEN_BYTES = 16_384
_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
_KNOWN = {"alg", "kid", "typ"}
# Header parameters by which a token would choose its own verification key.
_BRINGS_A_KEY = {"jku", "jwk", "x5u", "x5c", "x5t", "x5t#S256"}


def header_of(
    token: str, *, max_bytes: int, types: Collection[str] = ("jwt",), also: Collection[str] = ()
) -> dict[str, str]:
    """Return the header of a well-formed token, before its signature is verified.

    Raises TOKEN_MALFORMED, or TOKEN_SIGNATURE_INVALID for an algorithm that is not accepted and for a header with a
    key. `types` are the accepted media types, beside none; `also` are further parameters that are ignored.
    """
    if len(token) > max_bytes or not _COMPACT.fullmatch(token):
        raise MeshError(Reason.TOKEN_MALFORMED)
    header = _object(token.partition(".")[0], MAX_HEADER_BYTES)
    unknown = header.keys() - _KNOWN - set(also)
    if unknown & _BRINGS_A_KEY:
        raise MeshError(Reason.TOKEN_SIGNATURE_INVALID)
    if unknown or not all(isinstance(header[name], str) for name in header.keys() & _KNOWN):
        raise MeshError(Reason.TOKEN_MALFORMED)
    if header.get("typ", "jwt").lower().removeprefix("application/") not in types:
        raise MeshError(Reason.TOKEN_MALFORMED)
    if header.get("alg") not in ALGORITHMS:
        raise MeshError(Reason.TOKEN_SIGNATURE_INVALID)
    return header


def payload_of(token: str) -> dict[str, Any]:
    """Return the unverified claims of a well-formed token. A repeated claim raises TOKEN_MALFORMED."""
    return _object(token.split(".")[1], len(token))


def _object(part: str, max_bytes: int) -> dict[str, Any]:
    try:
        return parse_object(urlsafe_b64decode(part + "=" * (-len(part) % 4)), max_bytes=max_bytes)
    except (MeshError, ValueError):
        raise MeshError(Reason.TOKEN_MALFORMED) from None
