"""Keeps the third-party packages of packs installed: once per content, and as long as a pack refers to it."""

from __future__ import annotations

import hashlib
import shutil
import weakref
from collections import deque
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from services.executor.adapters.runners.packs.package_lock import FOLDER
from services.executor.adapters.runners.packs.unpack_wheels import unpack_wheels


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Library:
    """Installed packages. Equal content is one object."""

    folder: Path


class Libraries:
    """The installed packages by content. Blocking, for one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._numbers = folder, count()
        self._installed: weakref.WeakValueDictionary[str, Library] = weakref.WeakValueDictionary()
        self._unused: deque[Path] = deque()

    def require(self, pack: Path, wheels: tuple[str, ...]) -> Library:
        """Return the library of a pack's wheels, installed if it is not. Raises WheelError or OSError."""
        digest = content_of(pack, wheels)
        if (library := self._installed.get(digest)) is not None:
            return library
        target = self._folder / str(next(self._numbers))
        try:
            unpack_wheels((pack / FOLDER / name for name in wheels), target)
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise
        library = self._installed[digest] = Library(target)
        weakref.finalize(library, self._unused.append, target).atexit = False
        return library

    def remove_unused(self) -> None:
        """Remove what no pack refers to any more."""
        while self._unused:
            shutil.rmtree(self._unused.popleft(), ignore_errors=True)


def content_of(pack: Path, wheels: tuple[str, ...]) -> str:
    """Return a digest of the content of wheels."""
    digests = []
    for name in wheels:
        with (pack / FOLDER / name).open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    return hashlib.sha256(" ".join(sorted(digests)).encode()).hexdigest()
