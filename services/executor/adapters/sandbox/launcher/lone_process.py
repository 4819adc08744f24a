"""Notices at little cost that a sandbox has got further processes.

RLIMIT_AS bounds the memory of each process, so that of a tree needs to be measured only while there are several.
"""

from __future__ import annotations

import os
from contextlib import suppress

from services.executor.adapters.sandbox.launcher.process_tree import children

_LINKS_OF_ONE_THREAD = 3
"""A task folder has two links and one for each thread."""


class ForkCounter:
    """Says whether any process or thread was started in this PID namespace or below since the last question."""

    def __init__(self, path: str = "/proc/loadavg") -> None:
        # A file that something else shows in this place, such as lxcfs, does not count.
        self._trusted = os.stat(path).st_dev == os.stat("/proc").st_dev  # noqa: PTH116
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._last = b""

    def changed(self) -> bool:
        """Return whether the newest PID is another one; always true where that is not known."""
        newest = os.pread(self._descriptor, 128, 0).rsplit(maxsplit=1)[-1]
        before, self._last = self._last, newest
        return newest != before or not self._trusted


class LoneProcess:
    """The only process of a sandbox beside the init of its namespace. Its files stay open, which makes looks cheap."""

    def __init__(self, init: int, pid: int) -> None:
        """Raises OSError if one of them has ended."""
        self._pid = b"%d" % pid
        self._descriptors: list[int] = []
        flags = os.O_RDONLY | os.O_CLOEXEC
        try:
            for path, more in (
                (f"/proc/{pid}/task", os.O_PATH | os.O_DIRECTORY),
                (f"/proc/{pid}/task/{pid}/children", 0),
                (f"/proc/{init}/task/{init}/children", 0),
            ):
                self._descriptors.append(os.open(path, flags | more))
        except OSError:
            self.close()
            raise

    @classmethod
    def find(cls, init: int) -> LoneProcess | None:
        """Return the only child of an init; None if it has none or several, or if that one has threads or children."""
        with suppress(OSError):
            pids = list(children(init))
            if len(pids) == 1:
                found = cls(init, pids[0])
                if found.is_alone():
                    return found
                found.close()
        return None

    def is_alone(self) -> bool:
        """Return whether it has no thread and no child, and init no other child. Every process is a child of one."""
        try:
            task, own, of_init = self._descriptors
            return (
                os.fstat(task).st_nlink == _LINKS_OF_ONE_THREAD
                and not os.pread(own, 16, 0)
                and os.pread(of_init, 64, 0).strip() == self._pid
            )
        except OSError:
            return False

    def close(self) -> None:
        """Close its files. May be called again."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []
