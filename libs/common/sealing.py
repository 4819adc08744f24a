"""Encrypts stored values so that the database cannot reveal them.

AES-256-GCM under a key that never enters the database. A value is bound to its location: moved to another row, it
cannot be opened. The last key in order of file names encrypts, every key decrypts; a key is rotated by adding a file.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
_NONCE_BYTES = 12
_ID_BYTES = 4
_FORMAT = b"\x01"


class SealError(Exception):
    """A stored value cannot be opened: its key is missing, or it was changed or moved."""


class Seal:
    """Encrypts and decrypts bytes. Never shows its keys."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            raise ValueError("a seal needs keys of 32 bytes")
        self._by_id = {_key_id(key): AESGCM(key) for key in keys}
        self._current = _key_id(keys[-1])

    def seal(self, content: bytes, location: str) -> bytes:
        """Return the content encrypted; only `open` with the same location decrypts it."""
        nonce = os.urandom(_NONCE_BYTES)
        head = _FORMAT + self._current + nonce
        return head + self._by_id[self._current].encrypt(nonce, content, location.encode())

    def open(self, sealed: bytes, location: str) -> bytes:
        """Return the decrypted content. Raises SealError."""
        end = len(_FORMAT) + _ID_BYTES
        key = self._by_id.get(sealed[len(_FORMAT) : end])
        if not sealed.startswith(_FORMAT) or key is None:
            raise SealError
        try:
            return key.decrypt(sealed[end : end + _NONCE_BYTES], sealed[end + _NONCE_BYTES :], location.encode())
        except (InvalidTag, ValueError):
            raise SealError from None

    def __repr__(self) -> str:
        return f"Seal({len(self._by_id)} keys)"


def read_seal(folder: Path | str) -> Seal:
    """Read the keys of a folder: 32 bytes in base64 in each `*.key`. Raises ValueError that names the file, not its
    content.
    """
    files = sorted(Path(folder).glob("*.key"))
    if not files:
        raise ValueError(f"there is no *.key in {folder}")
    return Seal([_read(path) for path in files])


def new_key() -> bytes:
    """Return the text of a new key file."""
    return base64.b64encode(os.urandom(KEY_BYTES))


def _read(path: Path) -> bytes:
    try:
        key = base64.b64decode(path.read_bytes().strip(), validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise ValueError(f"{path} does not hold 32 bytes in base64")
    return key


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"toolmesh seal" + key).digest()[:_ID_BYTES]
