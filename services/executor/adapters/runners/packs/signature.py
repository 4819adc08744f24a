"""Tells cheaply whether the files of a pack changed: by what the file system says about them, without reading them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from services.executor.adapters.runners.packs.packs import MAX_FILES, SKIPPED

FileState = tuple[str, int, int, int, int]
"""Path, inode, size, and the times of the last change of content and of the entry, in nanoseconds."""
Signature = tuple[FileState, ...]


def signature_of(source: Path) -> Signature | None:
    """Return the state of every file of a pack; None if it cannot be read. A pack with too many files is cut off."""
    try:
        root = os.path.realpath(source, strict=True)
        states = []
        for state in _states(root, ""):
            states.append(state)
            if len(states) > MAX_FILES:
                break
        return (*sorted(states), (root, 0, 0, 0, 0))
    except OSError:
        return None


def _states(folder: str, prefix: str) -> Iterator[FileState]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name in SKIPPED:
                continue
            path = f"{prefix}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                yield from _states(entry.path, f"{path}/")
                continue
            link = entry.stat(follow_symlinks=False)
            yield path, link.st_ino, link.st_size, link.st_mtime_ns, link.st_ctime_ns
            if entry.is_symlink():
                try:
                    target = entry.stat()
                except OSError:
                    continue
                yield f"{path}/", target.st_ino, target.st_size, target.st_mtime_ns, target.st_ctime_ns
