"""Removes directory trees that untrusted code created.

A tool can nest directories so deeply that their path exceeds PATH_MAX and that recursion, or one descriptor per level,
fails. So nothing descends: each subdirectory is moved to the top, where its path is short, and emptied there.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

OPEN_DIR_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags that open a directory without following a symbolic link."""


def remove_tree(folder: Path) -> None:
    """Remove a directory with its content, including unreadable parts. Keeps what cannot be removed; ignores a missing
    one."""
    with suppress(OSError):
        top = os.open(folder, OPEN_DIR_FLAGS)
        try:
            _empty(top)
        finally:
            os.close(top)
        folder.rmdir()


def grant_owner_access(name: str, parent: int) -> None:
    """Set the mode of a directory to 0700. Never follows a symbolic link."""
    descriptor = os.open(name, OPEN_DIR_FLAGS | os.O_PATH, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{descriptor}", 0o700)  # noqa: PTH101
    finally:
        os.close(descriptor)


def _empty(top: int) -> None:
    # A name that untrusted code cannot guess.
    prefix = secrets.token_hex(8)
    names = (f"{prefix}-{number}" for number in count())
    pending = ["."]
    while pending:
        name = pending.pop()
        with suppress(OSError):
            pending += _clear(top, name, names)
            if name != ".":
                os.rmdir(name, dir_fd=top)


def _clear(top: int, name: str, names: Iterator[str]) -> list[str]:
    """Remove everything from a top-level directory; return the new names of its subdirectories."""
    moved: list[str] = []
    descriptor = os.open(name, OPEN_DIR_FLAGS, dir_fd=top)
    try:
        with os.scandir(descriptor) as entries:
            listed = list(entries)
        for entry in listed:
            with suppress(OSError):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=descriptor)
                    continue
                grant_owner_access(entry.name, descriptor)
                target = next(names)
                os.rename(entry.name, target, src_dir_fd=descriptor, dst_dir_fd=top)
                moved.append(target)
    finally:
        os.close(descriptor)
    return moved
