"""Decodes did:key identifiers, which contain the public key itself.

Supports Ed25519, P-256, secp256k1 and RSA keys in base58btc.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256K1, SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key

from services.authz.adapters.keys.thumbprints import base64url, jwk_thumbprint, number

PREFIX = "did:key:"
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_VALUES = {letter: value for value, letter in enumerate(_BASE58)}
# An RSA key of 4096 bits has about 720 characters; decoding takes quadratic time.
MAX_CHARACTERS = 1024
_ED25519, _SECP256K1, _P256, _RSA = 0xED, 0xE7, 0x1200, 0x1205


def jwk_of(did: str) -> dict[str, str]:
    """Return the public key of a did:key as a JWK. Raises ValueError for other identifiers and unsupported keys."""
    value = did.removeprefix(PREFIX)
    if value == did or not value.startswith("z"):
        raise ValueError("not a did:key in base58btc")
    code, key = _multicodec(base58_decode(value[1:]))
    decode = _DECODERS.get(code)
    if decode is None:
        raise ValueError("unsupported key type")
    return decode(key)


def thumbprint_of(did: str) -> str:
    """Return the RFC 7638 thumbprint of a did:key. Raises ValueError like jwk_of."""
    return jwk_thumbprint(jwk_of(did))


def base58_decode(text: str) -> bytes:
    """Decode base58btc. Raises ValueError for other characters and for texts that are longer than any key."""
    if not text or len(text) > MAX_CHARACTERS:
        raise ValueError("empty or too long")
    total = 0
    for letter in text:
        if letter not in _VALUES:
            raise ValueError("not base58btc")
        total = total * 58 + _VALUES[letter]
    zeros = len(text) - len(text.lstrip(_BASE58[0]))
    return b"\0" * zeros + total.to_bytes((total.bit_length() + 7) // 8, "big")


def _multicodec(payload: bytes) -> tuple[int, bytes]:
    """Split the multicodec code, a canonical unsigned varint of at most three bytes, from the key."""
    code = 0
    for index, byte in enumerate(payload[:3]):
        code |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if byte == 0 and index:
                raise ValueError("varint is not canonical")
            return code, payload[index + 1 :]
    raise ValueError("no multicodec code")


def _ed25519(key: bytes) -> dict[str, str]:
    if len(key) != 32:
        raise ValueError("not an Ed25519 key")
    return {"kty": "OKP", "crv": "Ed25519", "x": base64url(key)}


def _point_decoder(curve: Any, name: str) -> Callable[[bytes], dict[str, str]]:
    def decode(key: bytes) -> dict[str, str]:
        if len(key) != 33:
            raise ValueError("not a compressed point")
        point = EllipticCurvePublicKey.from_encoded_point(curve, key).public_numbers()
        x, y = point.x.to_bytes(32, "big"), point.y.to_bytes(32, "big")
        return {"kty": "EC", "crv": name, "x": base64url(x), "y": base64url(y)}

    return decode


def _rsa(key: bytes) -> dict[str, str]:
    try:
        public = load_der_public_key(key)
    except UnsupportedAlgorithm:
        raise ValueError("not an RSA key") from None
    if not isinstance(public, RSAPublicKey) or not 2048 <= public.key_size <= 4096:
        raise ValueError("not an RSA key of 2048 to 4096 bits")
    numbers = public.public_numbers()
    return {"kty": "RSA", "n": number(numbers.n), "e": number(numbers.e)}


_DECODERS: dict[int, Callable[[bytes], dict[str, str]]] = {
    _ED25519: _ed25519,
    _SECP256K1: _point_decoder(SECP256K1(), "secp256k1"),
    _P256: _point_decoder(SECP256R1(), "P-256"),
    _RSA: _rsa,
}
