"""Signed notes (C2SP signed-note and tlog-checkpoint) and the keys that they are verified with."""

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
    """What was given is not a signed note, not a checkpoint, or not a verifier key."""


class Trust(Enum):
    """What a note is worth to the holder of a key."""

    SIGNED = "signed"
    WRONG_KEY = "wrong key"
    WRONG_SIGNATURE = "wrong signature"


@dataclass(frozen=True, slots=True)
class VerifierKey:
    """A public key with the name that it signs under, as `<name>+<hash>+<base64 of type and key>`. The type of a log's key is
    Ed25519's, that of a witness's cosignature/v1."""

    name: str
    public_key: bytes

    @classmethod
    def parse(cls, text: str, kind: int = ED25519) -> VerifierKey:
        """Read a key of a type. Raises UnreadableNoteError, also when the hash is not the one of this name and key."""
        # From the right, because base64 may itself hold a plus.
        match = re.fullmatch(r"(?P<name>[^\s+]+)\+(?P<hash>[0-9a-f]{8})\+(?P<key>[A-Za-z0-9+/]+=*)", text.strip())
        if match is None:
            raise UnreadableNoteError("a verifier key is <name>+<hash>+<key>")
        key = _decoded(match["key"])
        if len(key) != 33 or key[0] != kind:
            raise UnreadableNoteError(f"the verifier key is not {_KINDS[kind]}")
        made = cls(match["name"], key[1:])
        if made.key_hash_for(made.name, kind).hex() != match["hash"]:
            raise UnreadableNoteError("the verifier key's hash is not that of its name and key")
        return made

    @property
    def log(self) -> str:
        """The log that the key speaks for: its name without the number of a shard."""
        return _SHARD.sub("", self.name)

    @property
    def key_id(self) -> str:
        """Name and hash."""
        return f"{self.name}+{self.key_hash_for(self.name).hex()}"

    @property
    def text(self) -> str:
        """The key as it is written."""
        return f"{self.key_id}+{base64.b64encode(bytes([ED25519]) + self.public_key).decode()}"

    def key_hash_for(self, name: str, kind: int = ED25519) -> bytes:
        """Return the four bytes by which a signature under this name says that this key made it."""
        return hashlib.sha256(name.encode() + b"\n" + bytes([kind]) + self.public_key).digest()[:4]

    def signed(self, message: bytes, signature: bytes) -> bool:
        """Say whether the signature is this key's."""
        try:
            Ed25519PublicKey.from_public_bytes(self.public_key).verify(signature, message)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Signature:
    """One signature line: who signed, by name and hash, and the signature."""

    name: str
    key_hash: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class Note:
    """A checkpoint as it was published: what it says, and who signed it. Nothing here is verified yet."""

    origin: str
    size: int
    root: bytes
    text: str
    signatures: tuple[Signature, ...]

    @classmethod
    def parse(cls, note: str) -> Note:
        """Read a checkpoint. Raises UnreadableNoteError."""
        text, found, signatures = note.rpartition("\n\n")
        lines = text.split("\n")
        if not found or len(lines) < 3 or not lines[0] or not _SIZE.fullmatch(lines[1]):
            raise UnreadableNoteError("this is not a checkpoint in the signed note format")
        root = _decoded(lines[2])
        if len(root) != 32 or not signatures.endswith("\n"):
            raise UnreadableNoteError("the checkpoint has no SHA-256 root hash, or is cut off")
        signed = tuple(_signature(line) for line in signatures.removesuffix("\n").split("\n"))
        return cls(lines[0], int(lines[1]), root, text + "\n", signed)

    @property
    def log(self) -> str:
        """The log that it speaks of: the origin without the number of the shard."""
        return _SHARD.sub("", self.origin)

    @property
    def shard(self) -> int:
        """The number of the shard that it speaks of; 0 for a log without shards."""
        match = _SHARD.search(self.origin)
        return int(match[1]) if match else 0

    def trust(self, key: VerifierKey) -> Trust:
        """Say what the note is worth to whoever holds this key: signed by it for this very log, by somebody else, or forged.

        One key speaks for all shards of its log. It signs under its own name or under the origin of the shard.
        """
        if self.log != key.log:
            return Trust.WRONG_KEY
        names = {key.name, key.log, self.origin}
        own = [each for each in self.signatures if each.name in names and each.key_hash == key.key_hash_for(each.name)]
        if not own:
            return Trust.WRONG_KEY
        valid = all(key.signed(self.text.encode(), each.signature) for each in own)
        return Trust.SIGNED if valid else Trust.WRONG_SIGNATURE

    def witnessed_by(self, witness: VerifierKey) -> bool:
        """Say whether a witness has co-signed it (C2SP tlog-cosignature, cosignature/v1)."""
        expected = witness.key_hash_for(witness.name, COSIGNATURE_V1)
        for each in self.signatures:
            if each.name == witness.name and each.key_hash == expected and len(each.signature) == 72:
                moment = int.from_bytes(each.signature[:8], "big")
                message = f"cosignature/v1\ntime {moment}\n{self.text}".encode()
                if witness.signed(message, each.signature[8:]):
                    return True
        return False


def _signature(line: str) -> Signature:
    parts = line.split(" ")
    if len(parts) != 3 or parts[0] != "\N{EM DASH}" or not parts[1]:
        raise UnreadableNoteError("a signature line is a dash, a name and base64")
    value = _decoded(parts[2])
    if len(value) < 5:
        raise UnreadableNoteError("a signature line is too short")
    return Signature(parts[1], value[:4], value[4:])


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UnreadableNoteError("not base64") from None
