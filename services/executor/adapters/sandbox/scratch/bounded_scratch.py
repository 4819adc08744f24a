"""Folders of limited size for the copies of volumes, each a tmpfs in a mount namespace that sandboxes join.

A tmpfs bounds what a run writes, deleted open files included, before it is written; a look at a folder on disk comes
too late and misses them. Blocking: use it in a thread.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.executor.adapters.sandbox.launcher.scratch_mounts import MESSAGE_BYTES

_ROOT = Path(__file__).resolve().parents[5]
_MAIN = (
    "import sys; sys.path.insert(0, sys.argv.pop()); "
    "from services.executor.adapters.sandbox.launcher.scratch_mounts import main; main()"
)
_ANSWER_SECONDS = 10.0
_EXIT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class ScratchFolder:
    """One mounted folder."""

    scratch: BoundedScratch
    namespace: int
    """The process in whose mount namespace it is."""
    source: Path
    """Its path in that namespace."""

    @property
    def path(self) -> Path:
        """Return the path by which this process reaches it."""
        return Path(f"/proc/{self.namespace}/root{self.source}")

    def used_bytes(self) -> int:
        """Return the bytes in use, those of deleted open files included."""
        usage = os.statvfs(self.path)
        return (usage.f_blocks - usage.f_bfree) * usage.f_frsize

    def resize(self, max_bytes: int) -> None:
        """Change its size. Raises OSError if it already holds more."""
        self.scratch.request(do="resize", name=self.source.name, bytes=max_bytes)

    def remove(self) -> None:
        """Unmount it. Does nothing the second time."""
        with suppress(OSError):
            self.scratch.request(do="unmount", name=self.source.name)


class BoundedScratch:
    """Creates folders below one folder. Its process starts with the first of them, and again after it was killed."""

    def __init__(self, folder: Callable[[], Path]) -> None:
        self._folder = folder
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def create(self, max_bytes: int, max_entries: int) -> ScratchFolder:
        """Return a new empty folder. Raises OSError."""
        name = secrets.token_hex(12)
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self.close()
                self._start()
            self.request(do="mount", name=name, bytes=max_bytes, entries=max_entries)
            assert self._process is not None
            return ScratchFolder(self, self._process.pid, self._folder() / name)

    def request(self, **message: Any) -> None:
        """Send a request and wait until it is done. Raises OSError."""
        with self._lock:
            if self._control is None:
                raise OSError("no mount namespace")
            self._control.send(json.dumps(message).encode())
            self._receive(self._control)

    @property
    def pid(self) -> int:
        """Return its process; 0 if none runs."""
        return 0 if self._process is None else self._process.pid

    def close(self) -> None:
        """End the process, and every mount with it."""
        with self._lock:
            if self._control is not None:
                self._control.close()
            if self._process is not None:
                try:
                    self._process.wait(_EXIT_SECONDS)
                except subprocess.TimeoutExpired:
                    self._process.kill()
                    self._process.wait()
            self._control = self._process = None

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            descriptor = theirs.fileno()
            command = [sys.executable, "-I", "-S", "-c", _MAIN, str(descriptor), str(self._folder()), str(_ROOT)]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=[descriptor], env={}, cwd="/", start_new_session=True
            )
        ours.settimeout(_ANSWER_SECONDS)
        self._control = ours
        self._receive(ours)

    def _receive(self, control: socket.socket) -> None:
        try:
            answer = control.recv(MESSAGE_BYTES)
        except TimeoutError:
            # A late answer would be taken for that of the next request.
            if self._process is not None:
                self._process.kill()
            raise
        if not answer:
            raise OSError("the mount namespace ended")
        if error := json.loads(answer)["error"]:
            raise OSError(error)
