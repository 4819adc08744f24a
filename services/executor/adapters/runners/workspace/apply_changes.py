"""Writes the changes of a run to a volume: first beside it, then each file by an atomic rename.

The caller holds the lock of the volume. Every step can be repeated after a crash. Blocking: run it in a thread.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from services.executor.adapters.runners.workspace.file_tree import LOCK, STAGING, copy_file, digest_of
from services.executor.domain.tool import FOLDER

_NO_SIZE_LIMIT = 1 << 62
_WRITE_ONLY = 0o222
_LOCK_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one path."""

    relative: str
    operation: str
    """create, update or delete."""
    before: str
    """The former content: a digest, FOLDER, or empty for none."""
    after: str


class VolumeBusyError(Exception):
    """Another process holds the lock of the volume."""


@contextmanager
def locked(volume: Path, within: float | None = None) -> Iterator[None]:
    """Hold the exclusive lock of the volume, which also excludes other processes.

    Raises VolumeBusyError after `within` seconds; None waits for as long as it takes.
    """
    # The lock file is write-only, so a tool that sees the volume read-only cannot open it. A tool could lock the folder
    # itself, or any readable file, and block every commit.
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(volume / LOCK, flags, _WRITE_ONLY)
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            os.fchmod(descriptor, _WRITE_ONLY)
        _lock(descriptor, within)
        yield
    finally:
        os.close(descriptor)


def is_unchanged(volume: Path, change: Change) -> bool:
    """Return whether the path still has its former content and is not reached through a link."""
    return not _passes_link(volume, change.relative) and digest_of(volume / change.relative) == change.before


def stage_changes(volume: Path, copy: Path, changes: Sequence[Change]) -> None:
    """Write the new content of every changed file to the staging folder, synced.

    The staging folder is on the volume's file system, so that renames are atomic.
    """
    staging = volume / STAGING
    staging.mkdir(mode=0o700)
    for number, change in enumerate(changes):
        if change.after not in ("", FOLDER):
            _stage(volume, copy, staging / str(number), change)


def apply_staged(volume: Path, changes: Sequence[Change]) -> Iterator[Change]:
    """Apply staged changes one by one, and yield each. Those that were applied before a crash are left as they are."""
    for number, change in enumerate(changes):
        _apply(volume, volume / STAGING / str(number), change)
        yield change
    for folder in {(volume / change.relative).parent for change in changes}:
        sync_path(folder)


def _lock(descriptor: int, within: float | None) -> None:
    if within is None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return
    until = time.monotonic() + within
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise VolumeBusyError from None
            time.sleep(_LOCK_POLL_SECONDS)
        else:
            return


def _passes_link(volume: Path, relative: str) -> bool:
    path = volume
    for step in relative.split("/"):
        path = path / step
        if path.is_symlink():
            return True
    return False


def _stage(volume: Path, copy: Path, staged: Path, change: Change) -> None:
    """Write a file's new content. A file keeps its mode; a new one is not executable."""
    copy_file(copy / change.relative, staged, _NO_SIZE_LIMIT)
    target = volume / change.relative
    former = target.stat() if change.before not in ("", FOLDER) else None
    staged.chmod(former.st_mode & 0o777 if former else 0o644)
    if os.geteuid() == 0:
        owner = former or volume.stat()
        os.chown(staged, owner.st_uid, owner.st_gid)
    sync_path(staged)


def _apply(volume: Path, staged: Path, change: Change) -> None:
    target = volume / change.relative
    if change.after == "":
        _remove(target)
    elif change.after == FOLDER:
        if not target.is_dir():
            _remove(target)
            target.mkdir(mode=0o755)
            _copy_owner(volume, target)
    elif staged.exists():
        if target.is_dir():
            target.rmdir()
        staged.replace(target)


def _remove(target: Path) -> None:
    if target.is_dir() and not target.is_symlink():
        target.rmdir()
    else:
        # Also where its folder is a file by now.
        with suppress(FileNotFoundError, NotADirectoryError):
            target.unlink()


def _copy_owner(volume: Path, target: Path) -> None:
    if os.geteuid() == 0:
        owner = volume.stat()
        os.chown(target, owner.st_uid, owner.st_gid)


def sync_path(path: Path) -> None:
    """Sync a file's content or a folder's entries to disk. Returns without error if the path no longer exists."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
