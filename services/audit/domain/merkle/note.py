"""Signed notes (C2SP signed-note): checkpoints as text that can be verified with the public key alone."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

_ED25519 = b"\x01"


@dataclass(frozen=True, slots=True)
class Origin:
    """Names the origin of a shard's checkpoints. Every shard has its own origin, so a note of one shard is never valid
    for another. The key signs under the origin, and under the name of the log, which opens the notes of all shards."""

    trust_domain: str

    def of_log(self, log_id: str) -> str:
        return f"{self.trust_domain}/audit/{log_id}"

    def of_shard(self, log_id: str, shard: int) -> str:
        return f"{self.trust_domain}/audit/{log_id}/{shard}"


class CheckpointKey(Protocol):
    """The Ed25519 key that signs checkpoints."""

    @property
    def public_key(self) -> bytes:
        """The public key, 32 bytes."""
        ...

    def sign(self, message: bytes) -> bytes:
        """Return the signature, 64 bytes."""
        ...


def checkpoint_text(origin: str, size: int, root: bytes) -> str:
    """Return the signed text: origin, tree size and root hash, one line each."""
    return f"{origin}\n{size}\n{base64.b64encode(root).decode()}\n"


def signed_note(text: str, names: Sequence[str], key: CheckpointKey) -> str:
    """Return the text with a signature line for each name of the key. A signature covers the text alone."""
    signature = key.sign(text.encode())
    encoded = {name: base64.b64encode(key_hash(name, key.public_key) + signature).decode() for name in names}
    return f"{text}\n" + "".join(f"\N{EM DASH} {name} {line}\n" for name, line in encoded.items())


def key_hash(name: str, public_key: bytes) -> bytes:
    """Return the four bytes that identify the signing key in a note."""
    return hashlib.sha256(name.encode() + b"\n" + _ED25519 + public_key).digest()[:4]


def key_id(name: str, public_key: bytes) -> str:
    """Return name and hash of a key."""
    return f"{name}+{key_hash(name, public_key).hex()}"


def verifier_key(name: str, public_key: bytes) -> str:
    """Return the verifier key in the one-line form that note tools read."""
    return f"{key_id(name, public_key)}+{base64.b64encode(_ED25519 + public_key).decode()}"


def signatures_of(note: str) -> list[bytes]:
    """Return the signatures of all signature lines; empty bytes for one that is not base64."""
    return [_signature(line) for line in note.rpartition("\n\n")[2].splitlines()]


def _signature(line: str) -> bytes:
    try:
        return base64.b64decode(line.rpartition(" ")[2], validate=True)[4:]
    except binascii.Error:
        return b""
