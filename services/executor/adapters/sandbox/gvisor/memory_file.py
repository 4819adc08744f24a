"""Measures the memory of everything inside one gVisor sandbox, from outside."""

from __future__ import annotations

import os
from contextlib import suppress

_LINK_TARGET = "/memfd:runsc-memory"
_BLOCK_BYTES = 512


class MemoryFile:
    """The memfd that backs all application memory of one gVisor sandbox.

    Private pages, shared mappings, memfds, System V segments and tmpfs files of the processes inside all lie in it, so
    its allocated blocks are what the sandbox uses, whether or not a process has them mapped. It stays open between
    measurements, which makes them cheap; until `close` its memory is not freed.
    """

    def __init__(self) -> None:
        self._descriptor = -1

    def used_bytes(self, sandbox_pid: int) -> int | None:
        """Return how many bytes are in use; None if the file cannot be found. `sandbox_pid` is the `runsc-sandbox`
        process."""
        with suppress(OSError):
            if self._descriptor < 0:
                self._descriptor = _open(sandbox_pid)
            if self._descriptor >= 0:
                return os.fstat(self._descriptor).st_blocks * _BLOCK_BYTES
        return None

    def close(self) -> None:
        """Close the file. May be called again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _open(sandbox_pid: int) -> int:
    folder = f"/proc/{sandbox_pid}/fd"
    for name in os.listdir(folder):  # noqa: PTH208
        with suppress(OSError):
            if os.readlink(f"{folder}/{name}").startswith(_LINK_TARGET):  # noqa: PTH115
                return os.open(f"{folder}/{name}", os.O_PATH | os.O_CLOEXEC)
    return -1
