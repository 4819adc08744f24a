"""Tokens put together by hand, so that they can be wrong in ways that no library would make them."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any

from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256

Signature = Callable[[bytes], bytes]


def assembled(header: Any, payload: Any, signature: Signature) -> str:
    """Return a token with exactly this header and payload: objects, or the bytes themselves."""
    signed = f"{part(header)}.{part(payload)}"
    return f"{signed}.{part(signature(signed.encode()))}"


def part(content: Any) -> str:
    """Write one part of a token."""
    octets = content if isinstance(content, bytes) else json.dumps(content).encode()
    return urlsafe_b64encode(octets).rstrip(b"=").decode()


def rs256(key: RSAPrivateKey) -> Signature:
    """Sign as RS256 does."""
    return lambda signed: key.sign(signed, padding.PKCS1v15(), SHA256())


def hs256(secret: bytes) -> Signature:
    """Sign as HS256 does, with a secret that need not be one."""
    return lambda signed: hmac.new(secret, signed, hashlib.sha256).digest()


def unsigned(signed: bytes) -> bytes:
    """Do not sign at all."""
    return b""
