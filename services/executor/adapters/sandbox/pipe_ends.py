"""The end of a pipe as event loops want it, and as safe as a thread next to them wants it."""

from __future__ import annotations

import os
from contextlib import suppress


class PipeEnd:
    """An open end of a pipe that is closed once.

    uvloop closes the descriptor of a file by itself, and closes the file afterwards; by then another thread may have got the same
    number for something else. So this closes its number only while that still is this pipe.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._identity = _identity(descriptor)

    def fileno(self) -> int:
        """Return its number."""
        return self._descriptor

    def close(self) -> None:
        """Close it, unless that was done."""
        with suppress(OSError):
            if _identity(self._descriptor) == self._identity:
                os.close(self._descriptor)


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
