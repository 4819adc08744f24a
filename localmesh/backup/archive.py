"""Writes and reads a backup: one compressed tar of the database, the keys and the volumes, with their digests."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

FORMAT = 1
MANIFEST = "manifest.json"
DATABASE = "database.dump"
SECRETS, VOLUMES = "secrets", "volumes"
CHUNK_BYTES = 1024 * 1024


class ArchiveError(Exception):
    """The file is not a complete backup."""


def write_archive(target: Path, database: Path, secrets: Path, volumes: Path) -> dict[str, Any]:
    """Writes the archive atomically, readable by its owner only, and returns its manifest."""
    sources = {DATABASE: database, **_files(SECRETS, secrets), **_files(VOLUMES, volumes)}
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    digests: dict[str, str] = {}
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz", compresslevel=3) as tar:
            for name, path in sources.items():
                # A volume's file may change while it is read: the digest is of the bytes that were archived.
                content = path.read_bytes() if name != DATABASE else None
                digests[name] = _add(tar, name, path, content)
            manifest = {"format": FORMAT, "created": datetime.now(UTC).isoformat(timespec="seconds"), "files": digests}
            _add(tar, MANIFEST, None, json.dumps(manifest, indent=2).encode())
            tar.close()
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return manifest


def extract_archive(source: Path, folder: Path) -> dict[str, Any]:
    """Extracts a backup into an empty folder and returns its manifest. Raises ArchiveError unless it is complete."""
    digests: dict[str, str] = {}
    manifest: Any = {}
    try:
        with tarfile.open(source, mode="r:gz") as tar:
            for member in tar:
                content = tar.extractfile(member) if member.isreg() else None
                if content is None or not _is_expected(member.name):
                    raise ArchiveError(f"{source} holds {member.name}, which no backup holds")
                if member.name == MANIFEST:
                    manifest = json.loads(content.read())
                else:
                    digests[member.name] = _extract(content, folder / member.name, member.mode)
    except (tarfile.TarError, zlib.error, EOFError, OSError, ValueError) as error:
        raise ArchiveError(f"{source} cannot be read as a backup: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT or manifest.get("files") != digests:
        raise ArchiveError(f"{source} is not a complete backup of this version of the mesh")
    return manifest


def _files(prefix: str, folder: Path) -> dict[str, Path]:
    return {f"{prefix}/{path.relative_to(folder)}": path for path in sorted(_regular_files(folder))}


def _regular_files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        # A link could lead out of the volume, here or where it is restored.
        if path.is_file() and not path.is_symlink():
            yield path


def _add(tar: tarfile.TarFile, name: str, path: Path | None, content: bytes | None) -> str:
    entry = tarfile.TarInfo(name)
    entry.mode = path.stat().st_mode & 0o777 if path else 0o600
    if content is not None:
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
        return hashlib.sha256(content).hexdigest()
    assert path is not None
    entry.size = path.stat().st_size
    with path.open("rb") as file:
        tar.addfile(entry, file)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_expected(name: str) -> bool:
    parts = PurePosixPath(name).parts
    inside = len(parts) > 1 and parts[0] in (SECRETS, VOLUMES) and ".." not in parts
    return inside or name in (MANIFEST, DATABASE)


def _extract(content: Any, path: Path, mode: int) -> str:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode & 0o777)
    with os.fdopen(descriptor, "w+b") as file:
        reader: BinaryIO = content
        shutil.copyfileobj(reader, file, CHUNK_BYTES)
        file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()
