"""Makes what a run changed in a copy real in the volume itself.

First everything is looked at: if anybody changed what the run changed, nothing is done at all. Then every new content is written
beside the volume's files and made durable, and only then moved to its place, one rename each: at no moment is there half a file.
Blocking: for threads, never for the event loop.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from services.executor.adapters.runners.workspace.file_tree import FOLDER, LOCK, STAGING, copy_file, digest_of

CHANGED, FAILED = "changed", "failed"
_LARGEST = 1 << 62
_WRITE_ONLY = 0o222


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one path."""

    relative: str
    operation: str
    """create, update or delete."""
    before: str
    """What was there: a digest, FOLDER, or nothing."""
    after: str


@dataclass(frozen=True, slots=True)
class Kept:
    """How many changes were made, and what stopped the rest."""

    done: int
    cause: str = ""


def keep_changes(volume: Path, copy: Path, changes: Sequence[Change]) -> Kept:
    """Make the changes. Whoever else keeps changes in the same volume waits for their turn, also in another process."""
    done = 0
    try:
        with _alone(volume), _staging(volume) as staging:
            if any(not _untouched(volume, change) for change in changes):
                return Kept(0, CHANGED)
            staged = [_stage(volume, copy, staging / str(nth), change) for nth, change in enumerate(changes)]
            for path, change in zip(staged, changes, strict=True):
                _make(volume, path, change)
                done += 1
            for folder in {(volume / change.relative).parent for change in changes}:
                make_durable(folder)
    except OSError:
        return Kept(done, FAILED)
    return Kept(done)


@contextmanager
def _alone(volume: Path) -> Iterator[None]:
    # A file that can be written and not read, so that it cannot be opened at all where a volume is shown to be read only. The folder
    # itself, or anything that can be read, a tool could lock as well as we can, and everybody would wait for the tool.
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
def _staging(volume: Path) -> Iterator[Path]:
    """A folder in the volume, so that a rename from it is one. What a killed executor left in it goes first."""
    staging = volume / STAGING
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(mode=0o700)
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _untouched(volume: Path, change: Change) -> bool:
    """What the run started from is still there, and the way to it leads through folders only."""
    return not _through_a_link(volume, change.relative) and digest_of(volume / change.relative) == change.before


def _through_a_link(volume: Path, relative: str) -> bool:
    place = volume
    for step in relative.split("/"):
        place = place / step
        if place.is_symlink():
            return True
    return False


def _stage(volume: Path, copy: Path, staged: Path, change: Change) -> Path | None:
    """Write the new content of a file where it can be moved from. A file keeps its mode; a new one is nobody's program."""
    if change.after in ("", FOLDER):
        return None
    copy_file(copy / change.relative, staged, _LARGEST)
    make_durable(staged)
    place = volume / change.relative
    kept = place.stat() if change.before not in ("", FOLDER) else None
    staged.chmod(kept.st_mode & 0o777 if kept else 0o644)
    if os.geteuid() == 0:
        owner = kept or volume.stat()
        os.chown(staged, owner.st_uid, owner.st_gid)
    return staged


def _make(volume: Path, staged: Path | None, change: Change) -> None:
    place = volume / change.relative
    if FOLDER in (change.before, change.after) and change.before and change.after:
        # A file in place of a folder or the other way round: the old goes before the new comes.
        _remove(place, change)
    if change.after == "":
        _remove(place, change)
    elif staged is None:
        place.mkdir(mode=0o755)
        _own_as(place, volume)
    else:
        staged.replace(place)


def _remove(place: Path, change: Change) -> None:
    if change.before == FOLDER:
        place.rmdir()
    else:
        place.unlink()


def _own_as(place: Path, volume: Path) -> None:
    if os.geteuid() == 0:
        owner = volume.stat()
        os.chown(place, owner.st_uid, owner.st_gid)


def make_durable(path: Path) -> None:
    """Return once a file's content, or a folder's list of names, survives a loss of power. Fine if it is gone by now."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
