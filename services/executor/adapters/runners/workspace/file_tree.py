"""Copies and hashes folder trees. Links and devices are never followed, opened or copied.

Blocking: run it in a thread.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from services.executor.domain.tool import FOLDER

# The mesh's own entries in a volume: the staging folder, the lock and the notes of commits. They are never copied.
STAGING, LOCK, COMMITS = ".toolmesh-staging", ".toolmesh-lock", ".toolmesh-commits"
_OTHER_TYPE = "neither"
_GONE = (FileNotFoundError, NotADirectoryError)
_CHUNK = 1 << 20
_MAX_DEPTH = 64
MAX_ENTRIES = 100_000


class TreeTooLargeError(Exception):
    """The tree exceeds a limit of bytes, entries or depth."""


class CopyCanceledError(Exception):
    """The copy is no longer wanted."""


class UnsupportedFileError(Exception):
    """An entry is neither a file nor a folder."""


Tree = Mapping[str, str]
"""Relative path to digest, or FOLDER."""


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One file or folder of a tree."""

    relative: str
    path: Path
    status: os.stat_result


def copy_tree(source: Path, target: Path, max_bytes: int, is_wanted: Callable[[], bool] = lambda: True) -> Tree:
    """Copy the files and folders of a volume, for their owner alone, and return the tree.

    Other entries, and entries that disappear meanwhile, are skipped. Raises TreeTooLargeError, and CopyCanceledError as
    soon as the copy is no longer wanted.
    """
    tree: dict[str, str] = {}
    target.mkdir(mode=0o700)
    for entry in _entries(source, tolerant=True):
        if not is_wanted():
            raise CopyCanceledError
        copy = target / entry.relative
        if stat.S_ISDIR(entry.status.st_mode):
            copy.mkdir(mode=0o700)
            tree[entry.relative] = FOLDER
            continue
        try:
            size, tree[entry.relative] = copy_file(entry.path, copy, max_bytes)
        except (*_GONE, UnsupportedFileError):
            # The volume is being changed at this moment: the copy has the later state.
            continue
        max_bytes -= size
    return tree


def copy_file(source: Path, target: Path, max_bytes: int) -> tuple[int, str]:
    """Copy a file to a new path and return its size and digest. Raises TreeTooLargeError and FileExistsError."""
    size, hashed = 0, hashlib.sha256()
    with _open_regular(source) as reading, open(target, "xb", opener=_create_private) as writing:
        while chunk := os.read(reading, _CHUNK):
            size += len(chunk)
            if size > max_bytes:
                raise TreeTooLargeError
            hashed.update(chunk)
            writing.write(chunk)
    return size, hashed.hexdigest()


def read_tree(folder: Path, max_bytes: int) -> Tree:
    """Return the tree of a folder after a run.

    Raises TreeTooLargeError, and UnsupportedFileError for other entries and for those that the folder's owner does not
    own.
    """
    tree: dict[str, str] = {}
    for entry in _entries(folder, tolerant=False):
        if stat.S_ISDIR(entry.status.st_mode):
            tree[entry.relative] = FOLDER
            continue
        max_bytes -= entry.status.st_size
        if max_bytes < 0:
            raise TreeTooLargeError
        tree[entry.relative] = digest_of(entry.path)
    return tree


def digest_of(path: Path) -> str:
    """Return the digest of a file, FOLDER for a folder, empty for a missing path, and a marker for any other type."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    if stat.S_ISDIR(mode):
        return FOLDER
    if not stat.S_ISREG(mode):
        return _OTHER_TYPE
    hashed = hashlib.sha256()
    with _open_regular(path) as reading:
        while chunk := os.read(reading, _CHUNK):
            hashed.update(chunk)
    return hashed.hexdigest()


def _create_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


@contextmanager
def _open_regular(path: Path) -> Iterator[int]:
    """Open a regular file for reading. No link is followed, and opening a FIFO does not block."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnsupportedFileError
        yield descriptor
    finally:
        os.close(descriptor)


def _entries(root: Path, *, tolerant: bool) -> Iterator[TreeEntry]:
    """Yield everything below a folder, folders before their content.

    `tolerant` skips other file types and entries that disappear; otherwise they raise, as do entries of another owner.
    """
    count = 0
    owner = root.lstat().st_uid
    folders = [(root, "", 0)]
    while folders:
        folder, prefix, depth = folders.pop()
        if depth > _MAX_DEPTH:
            raise TreeTooLargeError
        for name in sorted(_names(folder, tolerant=tolerant)):
            relative = f"{prefix}{name}"
            if relative in (STAGING, LOCK, COMMITS):
                continue
            path = folder / name
            status = _status(path, tolerant=tolerant)
            if status is None:
                continue
            if not tolerant and status.st_uid != owner:
                # The tool opened its copy to other users of the machine, and one of them put this there.
                raise UnsupportedFileError
            is_folder = stat.S_ISDIR(status.st_mode)
            count += 1
            if count > MAX_ENTRIES:
                raise TreeTooLargeError
            if not tolerant and not is_folder and not status.st_mode & stat.S_IRUSR:
                path.chmod(0o600)
            yield TreeEntry(relative, path, status)
            if is_folder:
                folders.append((path, f"{relative}/", depth + 1))


def _names(folder: Path, *, tolerant: bool) -> list[str]:
    if not tolerant:
        # The tool may have removed the permissions; the run is over, so they are restored.
        folder.chmod(0o700)
        return os.listdir(folder)  # noqa: PTH208  (names, in one call)
    try:
        return os.listdir(folder)  # noqa: PTH208
    except _GONE:
        return []


def _status(path: Path, *, tolerant: bool) -> os.stat_result | None:
    """Return the status of a file or folder; None for an entry to skip."""
    try:
        status = path.lstat()
    except _GONE:
        if tolerant:
            return None
        raise
    if _is_utf8(path.name) and (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)):
        return status
    if tolerant:
        return None
    raise UnsupportedFileError


def _is_utf8(name: str) -> bool:
    """Return whether an audit record can contain the name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
