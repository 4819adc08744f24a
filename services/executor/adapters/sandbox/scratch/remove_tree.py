"""Removing folders, however their maker left them.

Who runs in a sandbox may nest folders so deeply that no call takes their path, and that whoever calls itself for each of them, or holds each
of them open, comes to an end before they do. So nothing is descended into: a folder that is found is moved up to the top, where its
name is short, and is emptied there in its turn.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

OPEN_DIR_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Opens a folder, and never what a link leads to."""


def remove_tree(folder: Path) -> None:
    """Remove a folder with all it holds, also where its maker closed parts of it. What cannot be removed is left; fine if nothing is there."""
    with suppress(OSError):
        top = os.open(folder, OPEN_DIR_FLAGS)
        try:
            _empty(top)
        finally:
            os.close(top)
        folder.rmdir()


def grant_owner_access(name: str, above: int) -> None:
    """Let the owner of a folder into it, whatever its maker thought of that. Never follows a link."""
    descriptor = os.open(name, OPEN_DIR_FLAGS | os.O_PATH, dir_fd=above)
    try:
        os.chmod(f"/proc/self/fd/{descriptor}", 0o700)  # noqa: PTH101
    finally:
        os.close(descriptor)


def _empty(top: int) -> None:
    # No maker can have known such a name.
    mark = secrets.token_hex(8)
    places = (f"{mark}-{nth}" for nth in count())
    waiting = ["."]
    while waiting:
        name = waiting.pop()
        with suppress(OSError):
            waiting += _cleared(top, name, places)
            if name != ".":
                os.rmdir(name, dir_fd=top)


def _cleared(top: int, name: str, places: Iterator[str]) -> list[str]:
    """Remove everything from a folder at the top, and return where the folders in it are now."""
    moved: list[str] = []
    descriptor = os.open(name, OPEN_DIR_FLAGS, dir_fd=top)
    try:
        with os.scandir(descriptor) as entries:
            found = list(entries)
        for entry in found:
            with suppress(OSError):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=descriptor)
                    continue
                grant_owner_access(entry.name, descriptor)
                place = next(places)
                os.rename(entry.name, place, src_dir_fd=descriptor, dst_dir_fd=top)
                moved.append(place)
    finally:
        os.close(descriptor)
    return moved
