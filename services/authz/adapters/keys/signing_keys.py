"""Reads signing keys from PEM files.

The type of a key decides the algorithm: RSA signs with RS256 (the default of a new mesh), P-256 with ES256, and Ed25519
with EdDSA. A folder may hold keys of different types, so that a mesh can migrate.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
import orjson
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from services.authz.adapters.keys.thumbprints import jwk_thumbprint

MIN_RSA_BITS = 2048
_PUBLIC = ("kty", "n", "e", "crv", "x", "y")
PrivateKey = RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey


class SigningKeysError(Exception):
    """Names an invalid key file and the reason. For the log of the process, never for a caller."""


@dataclass(frozen=True)
class FileKey:
    """A SigningKey that was read from a file."""

    kid: str
    algorithm: str
    public: Mapping[str, str]
    private: PrivateKey = field(repr=False)
    pem_digest: bytes = field(repr=False)

    async def sign(self, claims: Mapping[str, Any]) -> str:
        """Sign in a thread, because RSA takes milliseconds."""
        return await asyncio.to_thread(self._sign, claims)

    def _sign(self, claims: Mapping[str, Any]) -> str:
        return jwt.encode(dict(claims), self.private, self.algorithm, {"kid": self.kid})


@dataclass(frozen=True)
class KeySet:
    """The keys of a folder, in the order of their file names."""

    keys: tuple[FileKey, ...]
    jwks: bytes

    @property
    def active(self) -> FileKey:
        """The key with the newest file name."""
        return self.keys[-1]


def read_key_set(folder: Path, known: tuple[FileKey, ...] = ()) -> KeySet:
    """Read every .pem file. Raises SigningKeysError when there is none or one holds no supported signing key.

    `known` keys are not parsed again: validating an RSA key takes 200 ms.
    """
    by_digest = {key.pem_digest: key for key in known}
    keys = tuple(_read_key(path, by_digest) for path in key_files(folder))
    if not keys:
        raise SigningKeysError(f"{folder} holds no .pem file")
    distinct = {key.kid: dict(key.public) for key in keys}
    return KeySet(keys, orjson.dumps({"keys": list(distinct.values())}))


def key_files(folder: Path) -> list[Path]:
    """Return the key files, sorted by name."""
    return sorted(path for path in folder.glob("*.pem") if not path.name.startswith("."))


def _read_key(path: Path, known: Mapping[bytes, FileKey]) -> FileKey:
    try:
        pem = path.read_bytes()
        pem_digest = hashlib.sha256(pem).digest()
        return known.get(pem_digest) or _parse_key(pem, pem_digest)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SigningKeysError(f"{path.name} cannot be read as a signing key: {type(error).__name__}") from error


def _parse_key(pem: bytes, pem_digest: bytes) -> FileKey:
    private, algorithm, jwk = _classify(load_pem_private_key(pem, password=None))
    kid = jwk_thumbprint(jwk)
    public: dict[str, str] = {name: str(jwk[name]) for name in _PUBLIC if name in jwk}
    return FileKey(kid, algorithm, {**public, "kid": kid, "alg": algorithm, "use": "sig"}, private, pem_digest)


def _classify(private: object) -> tuple[PrivateKey, str, dict[str, Any]]:
    """Return a supported key, its algorithm and its public JWK."""
    if isinstance(private, RSAPrivateKey) and private.key_size >= MIN_RSA_BITS:
        return private, "RS256", jwt.algorithms.RSAAlgorithm.to_jwk(private.public_key(), as_dict=True)
    if isinstance(private, EllipticCurvePrivateKey) and isinstance(private.curve, SECP256R1):
        return private, "ES256", jwt.algorithms.ECAlgorithm.to_jwk(private.public_key(), as_dict=True)
    if isinstance(private, Ed25519PrivateKey):
        return private, "EdDSA", jwt.algorithms.OKPAlgorithm.to_jwk(private.public_key(), as_dict=True)
    raise ValueError("not a supported signing key")
