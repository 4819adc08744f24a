"""What a worker does between two calls: nothing of the first is left for the second.

Both are calls of one tenant to one version of one tool, so this is hygiene; what keeps tenants apart is that no worker ever serves
two of them.
"""

from __future__ import annotations

import os
import signal
import time

SCRATCH = "/tmp"  # noqa: S108  (the sandbox's own, and nobody else's)
_PATIENCE = 0.25
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class NotTidyError(Exception):
    """Something of the last call cannot be removed, so there must not be another in this process."""


class Tidier:
    """Knows what was there before the first call, and brings that back."""

    def __init__(self) -> None:
        self._processes = _processes()
        self._threads = _threads()
        self._environment = dict(os.environ)

    @staticmethod
    def alone() -> bool:
        """Return whether this process shares its process table with nobody but an init: only then may it clear that table."""
        return _processes() <= {1, os.getpid()}

    def tidy(self) -> None:
        """End what the call left running, and empty the scratch folder. Raises NotTidyError or OSError."""
        for timer in _TIMERS:
            # One that the call set would go off in the next, which knows nothing of it.
            signal.setitimer(timer, 0)
        if _processes() != self._processes:
            self._end_others()
        if _threads() > self._threads:
            raise NotTidyError
        _empty(SCRATCH)
        os.chdir(SCRATCH)
        if dict(os.environ) != self._environment:
            os.environ.clear()
            os.environ.update(self._environment)

    def _end_others(self) -> None:
        until = time.monotonic() + _PATIENCE
        while _processes() - self._processes:
            if time.monotonic() > until:
                raise NotTidyError
            for process in _processes() - self._processes:
                try:
                    os.kill(process, signal.SIGKILL)
                    os.waitpid(process, os.WNOHANG)
                except (ProcessLookupError, ChildProcessError):
                    continue
            time.sleep(0.001)


def memory() -> int:
    """Return how many bytes this process holds in memory."""
    with open("/proc/self/statm", "rb") as figures:  # noqa: PTH123  (pathlib is a cost at every cold start)
        return int(figures.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _processes() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208


def _empty(folder: str) -> None:
    with os.scandir(folder) as found:
        entries = list(found)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            # Its maker may have closed it, and still owns it.
            os.chmod(entry.path, 0o700)  # noqa: PTH101
            _empty(entry.path)
            os.rmdir(entry.path)  # noqa: PTH106
        else:
            os.unlink(entry.path)  # noqa: PTH108
