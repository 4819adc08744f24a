"""Packs the files that a pod shows read-only as an archive, within a bound."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

MAX_BYTES = 512 << 20
MAX_FILES = 50_000
_CHUNK = 256 << 10
_BLOCK = 4096

Binds = Sequence[tuple[str, str]]
"""Folders of the host, with their paths inside."""


class TooLargeError(Exception):
    """The files of a tool do not fit into a pod."""


def measure_files(binds: Binds) -> int:
    """Return the bytes that the files take on a disk. Raises TooLargeError, and OSError."""
    total = files = 0
    for host, _ in binds:
        for folder, folders, names in os.walk(host):
            files += len(names) + len(folders)
            total += sum(_on_disk(Path(folder) / name) for name in (*names, *folders))
            if total > MAX_BYTES or files > MAX_FILES:
                raise TooLargeError(f"more than {MAX_BYTES >> 20} MiB or {MAX_FILES} files")
    return total


def write_archive(binds: Binds, target: IO[bytes]) -> None:
    """Write the archive of the files at their paths inside. Raises OSError."""
    with tarfile.open(fileobj=target, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for host, inside in binds:
            for path, name in _walk(Path(host), inside.lstrip("/")):
                archive.add(path, name, recursive=False, filter=_anonymous)


def _walk(root: Path, inside: str) -> Iterator[tuple[Path, str]]:
    for folder, folders, names in os.walk(root):
        folders.sort()
        place = Path(folder)
        relative = inside if place == root else f"{inside}/{place.relative_to(root)}"
        if place != root:
            yield place, relative
        yield from ((place / name, f"{relative}/{name}") for name in sorted(names))


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Keep neither the owner nor the user's names; every process of the pod may read it."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member


def _on_disk(path: Path) -> int:
    size = path.lstat().st_size
    return (size + _BLOCK - 1) // _BLOCK * _BLOCK + _BLOCK
