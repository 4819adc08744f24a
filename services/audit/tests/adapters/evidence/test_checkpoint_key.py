"""The key that signs checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from services.audit.adapters.evidence.checkpoint_key import FileCheckpointKey


def test_signatures_verify_with_the_public_key(checkpoint_key_file: Path) -> None:
    key = FileCheckpointKey(checkpoint_key_file)
    Ed25519PublicKey.from_public_bytes(key.public_key).verify(key.sign(b"message"), b"message")


def test_the_public_key_is_that_of_the_file(checkpoint_key_file: Path, checkpoint_key: Ed25519PrivateKey) -> None:
    assert FileCheckpointKey(checkpoint_key_file).public_key == checkpoint_key.public_key().public_bytes_raw()


def test_a_key_of_another_kind_is_refused(pki: object) -> None:
    with pytest.raises(ValueError):
        FileCheckpointKey(pki.of("audit").key)  # type: ignore[attr-defined]
