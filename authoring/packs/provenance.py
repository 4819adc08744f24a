"""States and signs the code that a version is published with."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from toolmesh.registry.v1.tool_manifest_pb2 import Provenance, ToolManifest

from libs.common.json.canonical import canonical
from libs.common.signed_documents import public_key_of, sign
from services.registry.convert.manifest import manifest_of


class ProvenanceError(Exception):
    """The origin of a pack cannot be stated; the message says what to do."""


class Publisher:
    """Who publishes a pack, at which revision."""

    def __init__(self, key: Ed25519PrivateKey, pack_digest: str, revision: str) -> None:
        self._key, self._pack_digest, self._revision = key, pack_digest, revision

    @property
    def public_key(self) -> str:
        """The key that versions name."""
        return public_key_of(self._key)

    def sign(self, manifest: ToolManifest) -> None:
        """State the provenance in a manifest that is complete otherwise."""
        provenance = Provenance(pack_digest=self._pack_digest, revision=self._revision, public_key=self.public_key)
        manifest.provenance.CopyFrom(provenance)
        manifest.provenance.signature = sign(self._key, canonical(manifest_of(manifest).document))


def revision_of(folder: Path) -> str:
    """Return the commit that a pack is in. Raises ProvenanceError if its files are not all committed."""
    if _git(folder, "status", "--porcelain", "--", "."):
        raise ProvenanceError("has changes that are not committed; commit them, or name the revision with --revision")
    return _git(folder, "rev-parse", "HEAD")


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise ProvenanceError("is in no repository of git; name the revision with --revision") from None
    return done.stdout.strip()


def read_key(path: Path) -> Ed25519PrivateKey:
    """Return the key in a PEM file, which is made if it does not exist. Raises ProvenanceError."""
    if not path.exists():
        _write_key(path)
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise ProvenanceError(f"{path} is no Ed25519 key in PEM without a password")
    return key


def default_key_path() -> Path:
    """Return where the key of this user is."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "toolmesh" / "publisher.pem"


def _write_key(path: Path) -> None:
    pem = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ProvenanceError(f"{path} cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(pem)
