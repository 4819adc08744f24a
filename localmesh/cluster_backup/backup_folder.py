"""The folder of a backup: encrypted files, and a manifest that is written last. Without it a backup is not complete."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from localmesh.cluster_backup.encryption import BackupKey, new_salt
from localmesh.cluster_backup.errors import BackupError
from localmesh.state.files import write_private

FORMAT = 1
MANIFEST = "manifest.json"
DATABASE, SECRETS = "database.dump.sealed", "secrets.json.sealed"


@dataclass(frozen=True)
class LogHead:
    """The end of the audit log at the time of the backup."""

    log_id: str
    size: int
    checkpoint_shard: int
    checkpoint_size: int
    """The size of its shard that the last checkpoint signed; 0 if there was none."""


@dataclass(frozen=True)
class SealedFile:
    """A file of the backup as it lies in the folder."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a backup holds. It can be read without the passphrase, and not be changed unseen without it."""

    format: int
    version: str
    """The version of the mesh that made it."""
    create_time: str
    salt: str
    revisions: dict[str, str]
    """The revision of each service's schema."""
    log: LogHead
    files: dict[str, SealedFile] = field(default_factory=dict)

    @property
    def backup_id(self) -> str:
        """The identity of the backup."""
        return self.salt


class BackupWriter:
    """Writes a backup into a folder that holds no complete one."""

    def __init__(self, folder: Path, passphrase: bytes) -> None:
        """Prepare the folder. Raises BackupError if another backup, or anything else, is in it."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Files of an earlier run that was interrupted are written again.
        names = {path.name for path in folder.iterdir() if not path.name.startswith(f".{MANIFEST}.")}
        strangers = sorted(names - {DATABASE, SECRETS})
        if strangers:
            raise BackupError(f"{folder} is not empty: {strangers[0]}")
        self._folder, self._salt = folder, new_salt()
        self._key = BackupKey(passphrase, self._salt)
        self._files: dict[str, SealedFile] = {}

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write an encrypted file."""
        digest, size = hashlib.sha256(), 0
        descriptor = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            for piece in self._key.seal(name, chunks):
                file.write(piece)
                digest.update(piece)
                size += len(piece)
            file.flush()
            os.fsync(file.fileno())
        self._files[name] = SealedFile(size, digest.hexdigest())

    def finish(self, version: str, create_time: str, revisions: dict[str, str], log: LogHead) -> Manifest:
        """Write the manifest, which makes the backup complete."""
        manifest = Manifest(FORMAT, version, create_time, self._salt.hex(), revisions, log, self._files)
        content = asdict(manifest)
        document = {**content, "authentication": self._key.authenticate(_canonical(content))}
        write_private(self._folder / MANIFEST, json.dumps(document, indent=2).encode())
        return manifest


class BackupReader:
    """A complete backup whose manifest is authentic."""

    def __init__(self, folder: Path, passphrase: bytes) -> None:
        """Read the manifest. Raises BackupError for an incomplete backup or another passphrase."""
        self._folder = folder
        document = _read_document(folder / MANIFEST)
        code = document.pop("authentication", "")
        if document.get("format") != FORMAT:
            raise BackupError(f"{folder / MANIFEST} is of another format than {FORMAT}")
        self._key = BackupKey(passphrase, bytes.fromhex(str(document.get("salt", ""))))
        if not hmac.compare_digest(self._key.authenticate(_canonical(document)), str(code)):
            raise BackupError("the passphrase is not that of the backup, or its manifest was changed")
        files = {name: SealedFile(**item) for name, item in document.pop("files").items()}
        self.manifest = Manifest(log=LogHead(**document.pop("log")), files=files, **document)

    def verify(self) -> None:
        """Compare every file with its digest. Raises BackupError for one that differs."""
        for name, sealed in self.manifest.files.items():
            try:
                with (self._folder / name).open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise BackupError(f"{name} cannot be read: {error.strerror}") from None
            if digest != sealed.sha256:
                raise BackupError(f"{name} is not as it was written")

    def read(self, name: str) -> Iterator[bytes]:
        """Yield the content of a file. Raises BackupError for one that is not as it was written."""
        with (self._folder / name).open("rb") as file:
            yield from self._key.open(name, file)


def _read_document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise BackupError(f"{path.parent} holds no complete backup: it has no {path.name}") from None
    except (OSError, ValueError) as error:
        raise BackupError(f"{path} cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise BackupError(f"{path} is no manifest")
    return document


def _canonical(document: dict[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
