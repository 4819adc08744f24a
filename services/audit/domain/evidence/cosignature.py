"""Co-signatures of witnesses (C2SP tlog-cosignature): a witness attests that, and when, it saw a checkpoint."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from services.audit.domain.evidence.errors import cosignature_invalid
from services.audit.domain.evidence.ports import SignatureVerifier

_COSIGNATURE_V1 = b"\x04"
_KEY = re.compile(r"(?P<name>[^\s+]+)\+(?P<hash>[0-9a-f]{8})\+(?P<key>[A-Za-z0-9+/]+={0,2})")
_LINE = re.compile("\N{EM DASH} (?P<name>[^\\s+]+) (?P<signature>[A-Za-z0-9+/]+={0,2})")
_HASH, _TIME, _SIGNATURE = 4, 8, 64


@dataclass(frozen=True, slots=True)
class WitnessKey:
    """Name and public key of a witness."""

    name: str
    public_key: bytes

    @property
    def hash(self) -> bytes:
        """The four bytes that identify the key in a signature line."""
        return hashlib.sha256(self.name.encode() + b"\n" + _COSIGNATURE_V1 + self.public_key).digest()[:_HASH]

    @property
    def key_id(self) -> str:
        """Name and hash."""
        return f"{self.name}+{self.hash.hex()}"


def witness_keys(lines: Iterable[str]) -> list[WitnessKey]:
    """Parse verifier keys, one per line: `<name>+<hash>+<base64 of 0x04 and the key>`. Raises ValueError for anything
    else."""
    return [_witness_key(line.strip()) for line in lines if line.strip() and not line.startswith("#")]


def _witness_key(line: str) -> WitnessKey:
    match = _KEY.fullmatch(line)
    key = _decoded(match["key"]) if match else b""
    if match is None or len(key) != 33 or key[:1] != _COSIGNATURE_V1:
        raise ValueError("a witness key has the form <name>+<hash>+<key> with a cosignature/v1 key")
    witness = WitnessKey(match["name"], key[1:])
    if witness.hash.hex() != match["hash"]:
        raise ValueError("the hash of a witness key does not match its name and key")
    return witness


class Witnesses:
    """Verifies co-signatures of the configured witnesses."""

    def __init__(self, keys: Iterable[WitnessKey], verify_signature: SignatureVerifier) -> None:
        self._keys = {(key.name, key.hash): key for key in keys}
        self._verify_signature = verify_signature

    def verify(self, note: str, line: str) -> WitnessKey:
        """Return the key that signed the line for this note; raise INVALID_REQUEST if none did."""
        match = _LINE.fullmatch(line.removesuffix("\n"))
        signature = _decoded(match["signature"]) if match else b""
        if match is None or len(signature) != _HASH + _TIME + _SIGNATURE:
            raise cosignature_invalid("cosignature.form")
        key = self._keys.get((match["name"], signature[:_HASH]))
        if key is None:
            raise cosignature_invalid("cosignature.known_witness")
        timestamp = int.from_bytes(signature[_HASH : _HASH + _TIME], "big")
        text = note.partition("\n\n")[0]
        message = f"cosignature/v1\ntime {timestamp}\n{text}\n".encode()
        if not self._verify_signature(key.public_key, signature[_HASH + _TIME :], message):
            raise cosignature_invalid("cosignature.signature")
        return key


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""
