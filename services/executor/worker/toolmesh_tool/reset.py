"""Resets a worker between two calls, so that the second finds nothing of the first.

Both calls belong to one tool version and one subject, or one tenant if the tool says so. Others are kept apart by never
sharing a worker. What would run during the next call is removed: processes, timers, signal handlers, profilers. Where
something of it cannot be removed, the process ends.
"""

from __future__ import annotations

import os
import signal
import time

from .hooks import InterpreterHooks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .bridge import Bridge

SCRATCH = "/tmp"  # noqa: S108  (private to the sandbox)
_KILL_SECONDS = 0.25
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class ResetError(Exception):
    """Something of the last call cannot be removed, so this process must not serve another call."""


class WorkerReset:
    """Records the state before the first call and restores it."""

    def __init__(self, bridge: Bridge | None = None) -> None:
        """`bridge` is the child process that stays between calls."""
        self._bridge = bridge
        self._processes = _processes()
        self._threads = _threads()
        self._environment = dict(os.environ)
        self._hooks = InterpreterHooks()

    @staticmethod
    def is_alone() -> bool:
        """Return whether only an init process and the sandbox's own parent process share the PID namespace; otherwise
        killing all others would be unsafe."""
        return _processes() <= {1, os.getpid(), os.getppid()}

    def reset(self) -> None:
        """Kill processes of the call, remove its hooks and empty the scratch folder. Raises ResetError or OSError."""
        for timer in _TIMERS:
            # A timer of this call would fire during the next one.
            signal.setitimer(timer, 0)
        if _processes() != self._processes:
            self._kill_others()
        if self._bridge is not None and not self._bridge.is_alive():
            raise ResetError
        if _threads() > self._threads or not self._hooks.restore():
            raise ResetError
        _empty(SCRATCH)
        os.chdir(SCRATCH)
        if dict(os.environ) != self._environment:
            os.environ.clear()
            os.environ.update(self._environment)

    def _kill_others(self) -> None:
        deadline = time.monotonic() + _KILL_SECONDS
        while _processes() - self._processes:
            if time.monotonic() > deadline:
                raise ResetError
            for process in _processes() - self._processes:
                try:
                    os.kill(process, signal.SIGKILL)
                    os.waitpid(process, os.WNOHANG)
                except (ProcessLookupError, ChildProcessError):
                    continue
            time.sleep(0.001)


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    with open("/proc/self/statm", "rb") as figures:  # noqa: PTH123  (importing pathlib slows down a cold start)
        return int(figures.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _processes() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208


def _empty(folder: str) -> None:
    with os.scandir(folder) as listing:
        entries = list(listing)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            # The call may have removed its permissions.
            os.chmod(entry.path, 0o700)  # noqa: PTH101
            _empty(entry.path)
            os.rmdir(entry.path)  # noqa: PTH106
        else:
            os.unlink(entry.path)  # noqa: PTH108
