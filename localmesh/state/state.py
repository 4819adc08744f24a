"""The state folder of a local mesh, and the lock that allows one runner."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localmesh.state.files import read_json, write_json


class StateError(Exception):
    """The folder cannot serve as a state folder."""


@dataclass(frozen=True)
class State:
    """The paths inside a state folder."""

    path: Path

    @property
    def marker(self) -> Path:
        return self.path / "toolmesh-state.json"

    @property
    def lock_file(self) -> Path:
        return self.path / "lock"

    @property
    def runtime_file(self) -> Path:
        return self.path / "runtime.json"

    @property
    def children_file(self) -> Path:
        return self.path / "children.json"

    @property
    def ports_file(self) -> Path:
        return self.path / "ports.json"

    @property
    def token_file(self) -> Path:
        return self.path / "token"

    @property
    def restart_requests(self) -> Path:
        return self.path / "restart"

    @property
    def secrets(self) -> Path:
        return self.path / "secrets"

    @property
    def pki(self) -> Path:
        return self.path / "pki"

    @property
    def packs(self) -> Path:
        """The packs under development."""
        return self.path / "packs"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def log_file(self, part: str) -> Path:
        return self.logs / f"{part}.log"

    def runtime(self) -> dict[str, Any]:
        """Returns the runner's last runtime document; empty if there is none."""
        return read_json(self.runtime_file)


def open_state(path: Path) -> State:
    """Creates a private state folder. Refuses a folder with other content, because `reset` deletes it."""
    state = State(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not state.marker.exists() and any(path.iterdir()):
            raise StateError(f"{path} holds other files; choose an empty folder for the state")
        path.chmod(0o700)
        for folder in (state.secrets, state.pki, state.logs):
            folder.mkdir(mode=0o700, exist_ok=True)
        write_json(state.marker, {"format": 1})
    except OSError as error:
        raise StateError(f"{path} cannot be used as the state folder: {error.strerror}") from error
    return state


class RunLock:
    """The exclusive right to run a state folder. The kernel releases it when the process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        os.close(self._descriptor)


def take_lock(state: State) -> RunLock | None:
    """Takes the lock and writes our process id into it; None while another runner holds it."""
    descriptor = os.open(state.lock_file, os.O_RDWR | os.O_CREAT, 0o600)
    if not _lock_exclusively(descriptor):
        os.close(descriptor)
        return None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return RunLock(descriptor)


def _lock_exclusively(descriptor: int) -> bool:
    # A query (`runner_pid`) holds the lock for some microseconds; a runner holds it for good.
    for _ in range(20):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.01)
        else:
            return True
    return False


def runner_pid(state: State) -> int | None:
    """Returns the pid of the folder's runner; None if there is none."""
    try:
        descriptor = os.open(state.lock_file, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with contextlib.closing(os.fdopen(descriptor, "r")) as file:
        # Between taking the lock and writing into it lie some microseconds, in which no pid is stored.
        for _ in range(20):
            if not _is_locked(descriptor):
                return None
            file.seek(0)
            if text := file.read():
                return int(text)
            time.sleep(0.01)
    return None


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False
