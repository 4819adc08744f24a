"""Encrypts the files of a backup under a passphrase, in pieces, so that memory does not grow with a file.

A key is derived by scrypt from the passphrase and the salt of the backup, and from it one for each file. A file is a
sequence of pieces, each sealed by AES-256-GCM. The nonce counts pieces and marks the last one: a piece that is changed,
exchanged, left out or cut off does not open.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from localmesh.cluster_backup.errors import BackupError

PIECE_BYTES = 1024 * 1024
SALT_BYTES = 16
SHORTEST_PASSPHRASE = 16
_TAG_BYTES = 16


class BackupKey:
    """The key of one backup."""

    def __init__(self, passphrase: bytes, salt: bytes) -> None:
        """Derive the key, which takes 128 MB of memory and half a second. Raises BackupError for a short passphrase."""
        if len(passphrase) < SHORTEST_PASSPHRASE:
            raise BackupError(f"the passphrase is shorter than {SHORTEST_PASSPHRASE} bytes")
        self._key = Scrypt(salt=salt, length=32, n=2**17, r=8, p=1).derive(passphrase)

    def seal(self, name: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the sealed pieces of a file."""
        cipher, pieces = self._cipher(name), _regroup(chunks)
        number, piece = 0, next(pieces, b"")
        for following in pieces:
            yield cipher.encrypt(_nonce(number, last=False), piece, None)
            number, piece = number + 1, following
        yield cipher.encrypt(_nonce(number, last=True), piece, None)

    def open(self, name: str, file: BinaryIO) -> Iterator[bytes]:
        """Yield the content of a sealed file. Raises BackupError for one that is not as it was written."""
        cipher, number = self._cipher(name), 0
        sealed = file.read(PIECE_BYTES + _TAG_BYTES)
        while True:
            following = file.read(PIECE_BYTES + _TAG_BYTES)
            try:
                yield cipher.decrypt(_nonce(number, last=not following), sealed, None)
            except InvalidTag:
                raise BackupError(f"{name} is not as it was written") from None
            if not following:
                return
            number, sealed = number + 1, following

    def authenticate(self, content: bytes) -> str:
        """Return the code that only a holder of the passphrase can make for a content."""
        return hmac.new(self._derive("manifest"), content, hashlib.sha256).hexdigest()

    def _cipher(self, name: str) -> AESGCM:
        return AESGCM(self._derive(f"file {name}"))

    def _derive(self, purpose: str) -> bytes:
        return HKDF(hashes.SHA256(), 32, salt=None, info=f"toolmesh backup {purpose}".encode()).derive(self._key)


def new_salt() -> bytes:
    """Return the salt of a new backup."""
    return secrets.token_bytes(SALT_BYTES)


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([last])


def _regroup(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield full pieces, and what is left at the end."""
    pending = bytearray()
    for chunk in chunks:
        pending += chunk
        while len(pending) >= PIECE_BYTES:
            yield bytes(pending[:PIECE_BYTES])
            del pending[:PIECE_BYTES]
    if pending:
        yield bytes(pending)
