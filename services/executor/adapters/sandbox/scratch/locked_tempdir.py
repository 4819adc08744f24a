"""Folders that belong to one running process, and go with it: at its end, or at the start of the next one if it was killed."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

from services.executor.adapters.sandbox.scratch.remove_tree import remove_tree

_LOCK = "lock"


class LockedTempDir:
    """A new folder for what only lives as long as this process: sockets, bundles.

    It holds a lock for as long as the process lives, however that ends. Making one removes those of the same kind and user whose
    lock nobody holds; a lock rather than a process number, because numbers differ between containers that share a folder.
    """

    def __init__(self, kind: str, *, mode: int = 0o700, within: Path | None = None) -> None:
        parent = within or Path(tempfile.gettempdir())
        prefix = f"toolmesh-{kind}-"
        _sweep(parent, prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        # Locked before it has its name: whoever sweeps meanwhile takes a lock that nobody holds for one that was left behind.
        making = self.path / f"{_LOCK}.making"
        self._lock = os.open(making, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        making.rename(self.path / _LOCK)
        self.path.chmod(mode)

    def remove(self) -> None:
        """Remove it with all it holds. Fine if that was done before."""
        remove_tree(self.path)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _sweep(parent: Path, prefix: str) -> None:
    for folder in parent.glob(prefix + "*"):
        try:
            if folder.lstat().st_uid == os.geteuid():
                _remove_if_left(folder)
        except OSError:
            # Somebody else is removing it, or it is not as we make them; either way it is not ours to mend.
            continue


def _remove_if_left(folder: Path) -> None:
    # A folder without its lock is being made at this moment: it is left alone.
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove_tree(folder)
    finally:
        os.close(lock)
