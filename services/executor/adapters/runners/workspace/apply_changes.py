"""Applies the changes that a run made in a copy to the volume itself.

All changes are checked first: if the volume changed where the run changed it, nothing is applied. Then all new contents
are written to a staging folder in the volume, synced, and renamed into place one by one, so no file is ever half
written. Blocking: run it in a thread.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from services.executor.adapters.runners.workspace.file_tree import LOCK, STAGING, copy_file, digest_of
from services.executor.domain.tool import FOLDER

CHANGED, FAILED = "changed", "failed"
_NO_SIZE_LIMIT = 1 << 62
_WRITE_ONLY = 0o222


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one path."""

    relative: str
    operation: str
    """create, update or delete."""
    before: str
    """The former content: a digest, FOLDER, or empty for none."""
    after: str


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """The number of applied changes, and why the rest was not applied."""

    applied: int
    cause: str = ""


def apply_changes(volume: Path, copy: Path, changes: Sequence[Change]) -> ApplyResult:
    """Apply the changes under an exclusive lock on the volume, which also excludes other processes."""
    applied = 0
    try:
        with _locked(volume), _staging_folder(volume) as staging:
            if any(not _is_unchanged(volume, change) for change in changes):
                return ApplyResult(0, CHANGED)
            staged = [_stage(volume, copy, staging / str(number), change) for number, change in enumerate(changes)]
            for path, change in zip(staged, changes, strict=True):
                _apply(volume, path, change)
                applied += 1
            for folder in {(volume / change.relative).parent for change in changes}:
                sync_path(folder)
    except OSError:
        return ApplyResult(applied, FAILED)
    return ApplyResult(applied)


@contextmanager
def _locked(volume: Path) -> Iterator[None]:
    # The lock file is write-only, so a tool that sees the volume read-only cannot open it. A tool could lock the folder
    # itself, or any readable file, and block every commit.
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(volume / LOCK, flags, _WRITE_ONLY)
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            os.fchmod(descriptor, _WRITE_ONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _staging_folder(volume: Path) -> Iterator[Path]:
    """Create the staging folder on the volume's file system, so that renames are atomic.

    Removes leftovers of a crash.
    """
    staging = volume / STAGING
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(mode=0o700)
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _is_unchanged(volume: Path, change: Change) -> bool:
    """Return whether the path still has its former content and is not reached through a link."""
    return not _passes_link(volume, change.relative) and digest_of(volume / change.relative) == change.before


def _passes_link(volume: Path, relative: str) -> bool:
    path = volume
    for step in relative.split("/"):
        path = path / step
        if path.is_symlink():
            return True
    return False


def _stage(volume: Path, copy: Path, staged: Path, change: Change) -> Path | None:
    """Write a file's new content to the staging folder. A file keeps its mode; a new one is not executable."""
    if change.after in ("", FOLDER):
        return None
    copy_file(copy / change.relative, staged, _NO_SIZE_LIMIT)
    sync_path(staged)
    target = volume / change.relative
    former = target.stat() if change.before not in ("", FOLDER) else None
    staged.chmod(former.st_mode & 0o777 if former else 0o644)
    if os.geteuid() == 0:
        owner = former or volume.stat()
        os.chown(staged, owner.st_uid, owner.st_gid)
    return staged


def _apply(volume: Path, staged: Path | None, change: Change) -> None:
    target = volume / change.relative
    if FOLDER in (change.before, change.after) and change.before and change.after:
        # A file replaces a folder or the reverse: the old entry is removed first.
        _remove(target, change)
    if change.after == "":
        _remove(target, change)
    elif staged is None:
        target.mkdir(mode=0o755)
        _copy_owner(volume, target)
    else:
        staged.replace(target)


def _remove(target: Path, change: Change) -> None:
    if change.before == FOLDER:
        target.rmdir()
    else:
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
