"""Measures the memory of everything inside one gVisor sandbox, from outside."""

from __future__ import annotations

import os
from contextlib import suppress

_LINK_TARGET = "/memfd:runsc-memory"
_BLOCK_BYTES = 512


class MemoryFile:
    """The memfd that backs all application memory of one gVisor sandbox.

    Private pages, shared mappings, memfds, System V segments and tmpfs files of the processes inside all lie in it, so
    its allocated blocks are what the sandbox uses, whether or not a process has them mapped.
    """

    def __init__(self) -> None:
        self._path = ""

    def used_bytes(self, sandbox_pid: int) -> int | None:
        """Return how many bytes are in use; None if the file cannot be found. `sandbox_pid` is the `runsc-sandbox`
        process."""
        with suppress(OSError):
            self._path = self._path or _find(sandbox_pid)
            if self._path:
                return os.stat(self._path).st_blocks * _BLOCK_BYTES  # noqa: PTH116
        return None


def _find(sandbox_pid: int) -> str:
    folder = f"/proc/{sandbox_pid}/fd"
    for name in os.listdir(folder):  # noqa: PTH208
        with suppress(OSError):
            if os.readlink(f"{folder}/{name}").startswith(_LINK_TARGET):  # noqa: PTH115
                return f"{folder}/{name}"
    return ""
