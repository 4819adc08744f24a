"""Parses and verifies signed notes (C2SP signed-note and tlog-checkpoint) and verifier keys."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from enum import Enum

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

ED25519, COSIGNATURE_V1 = 0x01, 0x04
_KINDS = {ED25519: "an Ed25519 key", COSIGNATURE_V1: "a witness's key for cosignature/v1"}
_SIZE = re.compile(r"0|[1-9][0-9]*")
_SHARD = re.compile(r"/(0|[1-9][0-9]*)$")


class UnreadableNoteError(ValueError):
    """The text is not a signed note, a checkpoint or a verifier key."""


class Trust(Enum):
    """The result of verifying a note with a key."""

    SIGNED = "signed"
    WRONG_KEY = "wrong key"
    WRONG_SIGNATURE = "wrong signature"


@dataclass(frozen=True, slots=True)
class VerifierKey:
    """A public key and its name, as `<name>+<hash>+<base64 of type and key>`. The type is Ed25519 for a log, and
    cosignature/v1 for a witness."""

    name: str
    public_key: bytes

    @classmethod
    def parse(cls, text: str, kind: int = ED25519) -> VerifierKey:
        """Parse a key of a type. Raises UnreadableNoteError, also if the hash does not match name and key."""
        # Base64 may contain a plus.
        match = re.fullmatch(r"(?P<name>[^\s+]+)\+(?P<hash>[0-9a-f]{8})\+(?P<key>[A-Za-z0-9+/]+=*)", text.strip())
        if match is None:
            raise UnreadableNoteError("a verifier key is <name>+<hash>+<key>")
        key = _decode_base64(match["key"])
        if len(key) != 33 or key[0] != kind:
            raise UnreadableNoteError(f"the verifier key is not {_KINDS[kind]}")
        parsed = cls(match["name"], key[1:])
        if parsed.key_hash_for(parsed.name, kind).hex() != match["hash"]:
            raise UnreadableNoteError("the hash of the verifier key does not match its name and key")
        return parsed

    @property
    def log(self) -> str:
        """The log of the key: its name without the shard number."""
        return _SHARD.sub("", self.name)

    @property
    def key_id(self) -> str:
        """The name and hash of the key."""
        return f"{self.name}+{self.key_hash_for(self.name).hex()}"

    @property
    def text(self) -> str:
        """The text form of the key."""
        return f"{self.key_id}+{base64.b64encode(bytes([ED25519]) + self.public_key).decode()}"

    def key_hash_for(self, name: str, kind: int = ED25519) -> bytes:
        """Return the four-byte key hash of signatures under this name."""
        return hashlib.sha256(name.encode() + b"\n" + bytes([kind]) + self.public_key).digest()[:4]

    def verifies(self, message: bytes, signature: bytes) -> bool:
        """Return whether the signature is valid for this key."""
        try:
            Ed25519PublicKey.from_public_bytes(self.public_key).verify(signature, message)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature line: name, key hash and signature."""

    name: str
    key_hash: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class Note:
    """A parsed checkpoint and its signatures, not verified yet."""

    origin: str
    size: int
    root: bytes
    text: str
    signatures: tuple[Signature, ...]

    @classmethod
    def parse(cls, note: str) -> Note:
        """Parse a checkpoint. Raises UnreadableNoteError."""
        text, separator, signatures = note.rpartition("\n\n")
        lines = text.split("\n")
        if not separator or len(lines) < 3 or not lines[0] or not _SIZE.fullmatch(lines[1]):
            raise UnreadableNoteError("this is not a checkpoint in the signed note format")
        root = _decode_base64(lines[2])
        if len(root) != 32 or not signatures.endswith("\n"):
            raise UnreadableNoteError("the checkpoint has no SHA-256 root hash, or is truncated")
        signed = tuple(_parse_signature(line) for line in signatures.removesuffix("\n").split("\n"))
        return cls(lines[0], int(lines[1]), root, text + "\n", signed)

    @property
    def log(self) -> str:
        """The log of the checkpoint: its origin without the shard number."""
        return _SHARD.sub("", self.origin)

    @property
    def shard(self) -> int:
        """The shard of the checkpoint; 0 for a log without shards."""
        match = _SHARD.search(self.origin)
        return int(match[1]) if match else 0

    def trust(self, key: VerifierKey) -> Trust:
        """Verify the signatures of a key: valid for this log, made by another key, or forged.

        One key signs all shards of its log, under its own name or under the origin of the shard.
        """
        if self.log != key.log:
            return Trust.WRONG_KEY
        names = {key.name, key.log, self.origin}
        own = [each for each in self.signatures if each.name in names and each.key_hash == key.key_hash_for(each.name)]
        if not own:
            return Trust.WRONG_KEY
        valid = all(key.verifies(self.text.encode(), each.signature) for each in own)
        return Trust.SIGNED if valid else Trust.WRONG_SIGNATURE

    def witnessed_by(self, witness: VerifierKey) -> bool:
        """Return whether a witness has co-signed the checkpoint (C2SP tlog-cosignature, cosignature/v1)."""
        expected = witness.key_hash_for(witness.name, COSIGNATURE_V1)
        for line in self.signatures:
            if line.name == witness.name and line.key_hash == expected and len(line.signature) == 72:
                time = int.from_bytes(line.signature[:8], "big")
                message = f"cosignature/v1\ntime {time}\n{self.text}".encode()
                if witness.verifies(message, line.signature[8:]):
                    return True
        return False


def _parse_signature(line: str) -> Signature:
    parts = line.split(" ")
    if len(parts) != 3 or parts[0] != "\N{EM DASH}" or not parts[1]:
        raise UnreadableNoteError("a signature line is a dash, a name and base64")
    value = _decode_base64(parts[2])
    if len(value) < 5:
        raise UnreadableNoteError("a signature line is too short")
    return Signature(parts[1], value[:4], value[4:])


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UnreadableNoteError("not base64") from None
