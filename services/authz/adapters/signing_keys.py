"""RSA signing keys from PEM files: one key, and the set of keys that a folder holds at one moment."""

from __future__ import annotations

import asyncio
import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
import orjson
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from libs.common.canonical import canonical

ALGORITHM = "RS256"
MIN_KEY_BITS = 2048


class SigningKeysError(Exception):
    """Says which key file cannot be used, and why. For the log of the process, never for a caller."""


@dataclass(frozen=True)
class RsaKey:
    """A SigningKey from a file."""

    kid: str
    public: Mapping[str, str]
    private: RSAPrivateKey = field(repr=False)
    pem_digest: bytes = field(repr=False)

    async def sign(self, claims: Mapping[str, Any]) -> str:
        """Sign in a thread: RSA takes milliseconds, and other calls must not wait for them."""
        return await asyncio.to_thread(self._sign, claims)

    def _sign(self, claims: Mapping[str, Any]) -> str:
        return jwt.encode(dict(claims), self.private, ALGORITHM, {"kid": self.kid})


@dataclass(frozen=True)
class KeySet:
    """The keys of a folder, in the order of their file names."""

    keys: tuple[RsaKey, ...]
    jwks: bytes

    @property
    def active(self) -> RsaKey:
        """The key with the newest file name."""
        return self.keys[-1]


def read_key_set(folder: Path, known: tuple[RsaKey, ...] = ()) -> KeySet:
    """Read every .pem file. Raises SigningKeysError when there is none, or one that is no RSA key of at least 2048 bits.

    Keys that are `known` are not parsed again: checking the numbers of an RSA key takes a fifth of a second.
    """
    by_digest = {key.pem_digest: key for key in known}
    keys = tuple(_read_key(path, by_digest) for path in key_files(folder))
    if not keys:
        raise SigningKeysError(f"{folder} holds no .pem file")
    distinct = {key.kid: dict(key.public) for key in keys}
    return KeySet(keys, orjson.dumps({"keys": list(distinct.values())}))


def key_files(folder: Path) -> list[Path]:
    """Return the files that hold keys, the oldest name first."""
    return sorted(path for path in folder.glob("*.pem") if not path.name.startswith("."))


def thumbprint(public: RSAPublicKey) -> str:
    """Return the RFC 7638 thumbprint: SHA-256 over the required members of the JWK, in base64url."""
    jwk = jwt.algorithms.RSAAlgorithm.to_jwk(public, as_dict=True)
    required = canonical({name: jwk[name] for name in ("e", "kty", "n")})
    return urlsafe_b64encode(hashlib.sha256(required).digest()).rstrip(b"=").decode()


def _read_key(path: Path, known: Mapping[bytes, RsaKey]) -> RsaKey:
    try:
        pem = path.read_bytes()
        pem_digest = hashlib.sha256(pem).digest()
        return known.get(pem_digest) or _parse_key(pem, pem_digest)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SigningKeysError(f"{path.name} cannot be read as an RSA private key: {type(error).__name__}") from error


def _parse_key(pem: bytes, pem_digest: bytes) -> RsaKey:
    private = load_pem_private_key(pem, password=None)
    if not isinstance(private, RSAPrivateKey) or private.key_size < MIN_KEY_BITS:
        raise ValueError("not an RSA key of sufficient size")
    public = private.public_key()
    kid = thumbprint(public)
    jwk = jwt.algorithms.RSAAlgorithm.to_jwk(public, as_dict=True)
    rendered = {"kty": jwk["kty"], "n": jwk["n"], "e": jwk["e"], "kid": kid, "alg": ALGORITHM, "use": "sig"}
    return RsaKey(kid, rendered, private, pem_digest)
