"""Temporary directories that belong to one process; a killed process's directories are removed by the next start."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import tempfile
from pathlib import Path

from services.executor.adapters.sandbox.launcher.process_identity import boot_id, pid_namespace, start_time
from services.executor.adapters.sandbox.scratch.detach_mounts import detach_mounts
from services.executor.adapters.sandbox.scratch.remove_tree import remove_tree

_LOCK = "lock"
_OWNER = re.compile(r"(?P<scope>[0-9a-f]{6})-(?P<pid>\d+)-(?P<start>\d+)-", re.ASCII)


class LockedTempDir:
    """A new temporary directory with a lock that is held while this process lives.

    Creating one removes unlocked directories of the same kind and user. A lock is used instead of a PID because PIDs
    differ between containers that share a directory. A directory without a lock file is being created or removed; its
    name says by which process, and it is removed once that process has ended.
    """

    def __init__(self, kind: str, *, mode: int = 0o700, within: Path | None = None) -> None:
        parent = within or Path(tempfile.gettempdir())
        prefix = f"toolmesh-{kind}-"
        _remove_stale(parent, prefix)
        self.path = Path(tempfile.mkdtemp(prefix=f"{prefix}{_owner(os.getpid())}-", dir=parent))
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
                _remove_if_unlocked(folder, prefix)
        except OSError:
            # Another process is removing it, or it was not created by this class.
            continue


def _remove_if_unlocked(folder: Path, prefix: str) -> None:
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        if _is_abandoned(folder.name.removeprefix(prefix)):
            _remove(folder)
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(folder)
    finally:
        os.close(lock)


def _remove(folder: Path) -> None:
    detach_mounts(folder)
    remove_tree(folder)


def _owner(pid: int) -> str:
    return f"{_pid_scope()}-{pid}-{start_time(pid)}"


def _pid_scope() -> str:
    """Return a short name, for the sake of socket paths, of where and since when PIDs mean what they mean here."""
    return hashlib.sha256(f"{boot_id()} {pid_namespace()}".encode()).hexdigest()[:6]


def _is_abandoned(name: str) -> bool:
    """Return whether a name tells a process of this boot and this PID namespace that has ended."""
    match = _OWNER.match(name)
    if match is None or match["scope"] != _pid_scope():
        return False
    return start_time(int(match["pid"])) != int(match["start"])
