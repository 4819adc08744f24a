"""Ed25519 signatures over canonical documents. Keys and signatures are base64url without padding."""

from __future__ import annotations

import base64
import binascii

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


def sign(key: Ed25519PrivateKey, payload: bytes) -> str:
    """Return the signature of a key over a payload."""
    return _encode(key.sign(payload))


def public_key_of(key: Ed25519PrivateKey) -> str:
    """Return the public part of a key."""
    return _encode(key.public_key().public_bytes_raw())


def is_signed_by(public_key: str, payload: bytes, signature: str) -> bool:
    """Return whether a signature is that of a key. False for anything that is no key or no signature."""
    try:
        Ed25519PublicKey.from_public_bytes(_decode(public_key)).verify(_decode(signature), payload)
    except (InvalidSignature, ValueError, binascii.Error):
        return False
    return True


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
