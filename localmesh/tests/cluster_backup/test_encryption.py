"""Sealed files: they open as they were written, or not at all."""

from __future__ import annotations

import io

import pytest

from localmesh.cluster_backup.encryption import PIECE_BYTES, BackupKey
from localmesh.cluster_backup.errors import BackupError

SEALED_BYTES = PIECE_BYTES + 16
SALT = bytes(16)


@pytest.fixture(scope="module")
def key() -> BackupKey:
    return BackupKey(b"correct horse battery staple", SALT)


def sealed(key: BackupKey, content: bytes) -> bytes:
    return b"".join(key.seal("file", [content[:7], content[7:]]))


def opened(key: BackupKey, content: bytes, name: str = "file") -> bytes:
    return b"".join(key.open(name, io.BytesIO(content)))


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES])
def test_a_file_of_any_size_comes_back_and_is_unreadable_meanwhile(key: BackupKey, size: int) -> None:
    content = b"password" * (size // 8 + 1)
    written = sealed(key, content[:size])
    assert opened(key, written) == content[:size]
    assert b"password" not in written


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        lambda content: content[:SEALED_BYTES],
        lambda content: content[SEALED_BYTES:],
        lambda content: content[SEALED_BYTES : 2 * SEALED_BYTES] + content[:SEALED_BYTES] + content[2 * SEALED_BYTES :],
        lambda content: content + content[:SEALED_BYTES],
        lambda content: b"",
    ],
    ids=["changed", "cut off", "without its beginning", "exchanged", "longer", "empty"],
)
def test_a_file_that_was_changed_does_not_open(key: BackupKey, change: object) -> None:
    written = sealed(key, bytes(2 * PIECE_BYTES + 100))
    with pytest.raises(BackupError):
        opened(key, change(written))  # type: ignore[operator]


def test_a_file_opens_under_its_own_name_and_passphrase_alone(key: BackupKey) -> None:
    written = sealed(key, b"content")
    with pytest.raises(BackupError):
        opened(key, written, name="other")
    with pytest.raises(BackupError):
        opened(BackupKey(b"another passphrase", SALT), written)
    with pytest.raises(BackupError):
        opened(BackupKey(b"correct horse battery staple", bytes([1] * 16)), written)


def test_a_passphrase_that_could_be_guessed_is_refused() -> None:
    with pytest.raises(BackupError):
        BackupKey(b"fifteen letters", SALT)
