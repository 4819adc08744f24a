"""Temporary directories that belong to one process; a killed process's directories are removed by the next start."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

from services.executor.adapters.sandbox.scratch.remove_tree import remove_tree

_LOCK = "lock"


class LockedTempDir:
    """A new temporary directory with a lock that is held while this process lives.

    Creating one removes unlocked directories of the same kind and user. A lock is used instead of a PID because PIDs
    differ between containers that share a directory.
    """

    def __init__(self, kind: str, *, mode: int = 0o700, within: Path | None = None) -> None:
        parent = within or Path(tempfile.gettempdir())
        prefix = f"toolmesh-{kind}-"
        _remove_stale(parent, prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        # Lock before renaming: a concurrent sweep would treat an unlocked lock file as stale.
        unnamed = self.path / f"{_LOCK}.making"
        self._lock = os.open(unnamed, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        unnamed.rename(self.path / _LOCK)
        self.path.chmod(mode)

    def remove(self) -> None:
        """Remove the directory with its content. May be called again."""
        remove_tree(self.path)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _remove_stale(parent: Path, prefix: str) -> None:
    for folder in parent.glob(prefix + "*"):
        try:
            if folder.lstat().st_uid == os.geteuid():
                _remove_if_unlocked(folder)
        except OSError:
            # Another process is removing it, or it was not created by this class.
            continue


def _remove_if_unlocked(folder: Path) -> None:
    # A directory without a lock file is being created right now: open fails and it is kept.
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove_tree(folder)
    finally:
        os.close(lock)
