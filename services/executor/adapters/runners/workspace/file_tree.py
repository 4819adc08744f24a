"""Folders, read as what they hold: copied, measured, compared. Links and devices are never followed, opened or carried.

Blocking: for threads, never for the event loop.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from services.executor.adapters.sandbox.scratch.remove_tree import OPEN_DIR_FLAGS, grant_owner_access

FOLDER = "folder"
"""What a folder is recorded as, where a file has the digest of its content."""
# The mesh's own places inside a volume: where changes are moved from, and what whoever moves them locks. No copy ever holds them.
STAGING, LOCK = ".toolmesh-staging", ".toolmesh-lock"
_NEITHER = "neither"
_GONE = (FileNotFoundError, NotADirectoryError)
_CHUNK = 1 << 20
_DEEPEST = 64
MAX_ENTRIES = 100_000


class TooLargeError(Exception):
    """There is more than there is room for."""


class UnwantedError(Exception):
    """Whoever asked for it has left."""


class ForeignError(Exception):
    """There is something that is neither a file nor a folder."""


Tree = Mapping[str, str]
"""What is where: relative path to digest, or FOLDER."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing in a folder."""

    relative: str
    path: Path
    status: os.stat_result


def copy_tree(source: Path, target: Path, room: int, wanted: Callable[[], bool] = lambda: True) -> Tree:
    """Copy the files and folders of a volume, open to whoever runs in the sandbox, and return what they are. What else is in it, or goes
    from it meanwhile, stays unseen. Raises TooLargeError, and UnwantedError as soon as it is no longer wanted."""
    tree: dict[str, str] = {}
    target.mkdir()
    for entry in _entries(source, tolerant=True):
        if not wanted():
            raise UnwantedError
        copy = target / entry.relative
        if stat.S_ISDIR(entry.status.st_mode):
            copy.mkdir()
            tree[entry.relative] = FOLDER
            continue
        try:
            size, tree[entry.relative] = copy_file(entry.path, copy, room)
        except (*_GONE, ForeignError):
            # Somebody is changing the volume at this moment: it is copied as it is afterwards.
            continue
        room -= size
    open_up(target)
    return tree


def copy_file(source: Path, target: Path, room: int) -> tuple[int, str]:
    """Copy one file to a new one and return its size and digest. Raises TooLargeError, and FileExistsError rather than write over one."""
    size, hashed = 0, hashlib.sha256()
    with _opened(source) as reading, target.open("xb") as writing:
        while chunk := os.read(reading, _CHUNK):
            size += len(chunk)
            if size > room:
                raise TooLargeError
            hashed.update(chunk)
            writing.write(chunk)
    return size, hashed.hexdigest()


def read_tree(folder: Path, room: int) -> Tree:
    """Return what a folder holds after a run. Raises TooLargeError, and ForeignError for anything but files and folders."""
    tree: dict[str, str] = {}
    for entry in _entries(folder, tolerant=False):
        if stat.S_ISDIR(entry.status.st_mode):
            tree[entry.relative] = FOLDER
            continue
        room -= entry.status.st_size
        if room < 0:
            raise TooLargeError
        tree[entry.relative] = digest_of(entry.path)
    return tree


def digest_of(path: Path) -> str:
    """Return the digest of a file; FOLDER for a folder; empty for nothing; a word of its own for what is neither."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    if stat.S_ISDIR(mode):
        return FOLDER
    if not stat.S_ISREG(mode):
        return _NEITHER
    hashed = hashlib.sha256()
    with _opened(path) as reading:
        while chunk := os.read(reading, _CHUNK):
            hashed.update(chunk)
    return hashed.hexdigest()


def taken(folder: Path) -> tuple[int, int]:
    """Return how many bytes and entries a folder takes, while somebody may be writing into it. Raises TooLargeError for what is nested
    deeper than anything that is ever kept."""
    # By descriptors: whoever writes may make a path as long, or a folder as much of a link, as suits them.
    descriptor = os.open(folder, OPEN_DIR_FLAGS)
    try:
        return _taken(descriptor, 0)
    finally:
        os.close(descriptor)


def _taken(descriptor: int, depth: int) -> tuple[int, int]:
    if depth > _DEEPEST:
        raise TooLargeError
    with os.scandir(descriptor) as found:
        listed = list(found)
    size, entries = 0, len(listed)
    for entry in listed:
        with suppress(OSError):
            if not entry.is_dir(follow_symlinks=False):
                size += entry.stat(follow_symlinks=False).st_blocks * 512
                continue
            below = _folder_in(descriptor, entry.name)
            try:
                more, further = _taken(below, depth + 1)
            finally:
                os.close(below)
            size, entries = size + more, entries + further
    return size, entries


def _folder_in(above: int, name: str) -> int:
    try:
        return os.open(name, OPEN_DIR_FLAGS, dir_fd=above)
    except PermissionError:
        # Closed by its maker, who would not be seen filling it otherwise.
        grant_owner_access(name, above)
        return os.open(name, OPEN_DIR_FLAGS, dir_fd=above)


def open_up(folder: Path) -> None:
    """Let whoever runs in the sandbox read and change everything in a copy: which user that is, is the sandbox's business."""
    for place, _, files in os.walk(folder):
        Path(place).chmod(0o777)
        for name in files:
            (Path(place) / name).chmod(0o666)


class _opened:  # noqa: N801  (used as a statement)
    """A file that is one: no link is followed, and nothing that waits for another end is opened."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> int:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        self._descriptor = os.open(self._path, flags)
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            os.close(self._descriptor)
            raise ForeignError
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def _entries(root: Path, *, tolerant: bool) -> Iterator[Entry]:
    """Everything below a folder, folders before what is in them. `tolerant` passes over what else there is, and what is gone when it is
    looked at; otherwise ForeignError."""
    count = 0
    folders = [(root, "", 0)]
    while folders:
        folder, prefix, depth = folders.pop()
        if depth > _DEEPEST:
            raise TooLargeError
        for name in sorted(_names(folder, tolerant=tolerant)):
            relative = f"{prefix}{name}"
            if relative in (STAGING, LOCK):
                continue
            path = folder / name
            status = _status(path, tolerant=tolerant)
            if status is None:
                continue
            is_folder = stat.S_ISDIR(status.st_mode)
            count += 1
            if count > MAX_ENTRIES:
                raise TooLargeError
            if not tolerant and not is_folder and not status.st_mode & stat.S_IRUSR:
                path.chmod(0o600)
            yield Entry(relative, path, status)
            if is_folder:
                folders.append((path, f"{relative}/", depth + 1))


def _names(folder: Path, *, tolerant: bool) -> list[str]:
    if not tolerant:
        # Its maker may have closed it; it is ours now.
        folder.chmod(0o777)
        return os.listdir(folder)  # noqa: PTH208  (names, in one call)
    try:
        return os.listdir(folder)  # noqa: PTH208
    except _GONE:
        return []


def _status(path: Path, *, tolerant: bool) -> os.stat_result | None:
    """What a file or folder is; None for what is passed over."""
    try:
        status = path.lstat()
    except _GONE:
        if tolerant:
            return None
        raise
    if _has_a_name(path.name) and (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)):
        return status
    if tolerant:
        return None
    raise ForeignError


def _has_a_name(name: str) -> bool:
    """Say whether evidence could name it: some are no text in any encoding."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
