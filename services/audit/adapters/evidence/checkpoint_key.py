"""Reads the checkpoint signing key from a PEM file."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


class FileCheckpointKey:
    """An Ed25519 private key. Any other file content prevents the process from starting."""

    def __init__(self, path: Path) -> None:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError("the checkpoint key is not an Ed25519 key")
        self._key = key

    @property
    def public_key(self) -> bytes:
        """The public key, 32 bytes."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Return the signature, 64 bytes."""
        return self._key.sign(message)
