"""The signed note: a checkpoint as text that anyone can verify with the public key and nothing else."""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass

from services.audit.domain.ports import CheckpointKey

_ED25519 = b"\x01"


@dataclass(frozen=True, slots=True)
class Origin:
    """What the checkpoints of a shard call it; also the name of the key that signs them. Every shard is a tree of its own,
    so no note of one passes for another's."""

    trust_domain: str

    def __call__(self, log_id: str, shard: int) -> str:
        return f"{self.trust_domain}/audit/{log_id}/{shard}"


def checkpoint_text(origin: str, size: int, root: bytes) -> str:
    """Return what is signed: origin, tree size and root hash, a line each."""
    return f"{origin}\n{size}\n{base64.b64encode(root).decode()}\n"


def signed_note(text: str, name: str, key: CheckpointKey) -> str:
    """Return the text with a signature line under the key's name."""
    signature = base64.b64encode(key_hash(name, key.public_key) + key.sign(text.encode())).decode()
    return f"{text}\n\N{EM DASH} {name} {signature}\n"


def key_hash(name: str, public_key: bytes) -> bytes:
    """Return the four bytes by which a note says which key signed it."""
    return hashlib.sha256(name.encode() + b"\n" + _ED25519 + public_key).digest()[:4]


def key_id(name: str, public_key: bytes) -> str:
    """Return the name and hash of a key."""
    return f"{name}+{key_hash(name, public_key).hex()}"


def verifier_key(name: str, public_key: bytes) -> str:
    """Return what a verifier needs to know, in the one-line form that note tools read."""
    return f"{key_id(name, public_key)}+{base64.b64encode(_ED25519 + public_key).decode()}"


def signature_of(note: str) -> bytes:
    """Return the signature of a note's first signature line; nothing if there is none."""
    lines = note.rpartition("\n\n")[2].splitlines()
    encoded = lines[0].rpartition(" ")[2] if lines else ""
    try:
        return base64.b64decode(encoded, validate=True)[4:]
    except binascii.Error:
        return b""
