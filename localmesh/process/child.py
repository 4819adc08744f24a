"""Starts child processes that cannot outlive the runner, and waits for them without threads.

The runner has one thread, for two reasons. The kernel sends the death signal when the *thread* that started a child
ends, so children must come from a thread that lives as long as the runner. And code between fork and exec is safe only
where no other thread can hold a lock at that moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import enum
import os
import pwd
import signal
import subprocess
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_CLONE_NEWUSER = 0x10000000
_LIBC = ctypes.CDLL(None, use_errno=True)


class RunAs(enum.Enum):
    """The user of a child process."""

    OURSELVES = "ourselves"
    # Root outside, nobody inside: may use root's files, and still is not root to a program that refuses to run as root.
    NAMESPACED_NOBODY = "nobody in a user namespace"
    NOBODY = "nobody"


@dataclass(frozen=True)
class Launch:
    """The command, folder, environment and user of a child process."""

    argv: tuple[str, ...]
    cwd: Path
    environment: Mapping[str, str] = field(repr=False)
    run_as: RunAs = RunAs.OURSELVES
    death_signal: signal.Signals = signal.SIGTERM


@dataclass(frozen=True)
class Finished:
    """The exit code and output of a short-lived child."""

    code: int
    output: str = field(repr=False)


class Child:
    """A running child process, in a session of its own so that Ctrl-C at the terminal does not reach it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid
        self._loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[int] = self._loop.create_future()
        self._pidfd = os.pidfd_open(process.pid)
        self._loop.add_reader(self._pidfd, self._reap)

    def _reap(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._exited.set_result(self._process.wait())

    @property
    def is_running(self) -> bool:
        return not self._exited.done()

    async def wait(self) -> int:
        """Returns the exit code, negative for a signal, once the process has ended."""
        return await asyncio.shield(self._exited)

    def send(self, number: signal.Signals) -> None:
        """Signals the process itself; does nothing once it has ended."""
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills the process and its session."""
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    async def stop(self, number: signal.Signals, seconds: float) -> bool:
        """Asks the process to end and kills it when the time is over; True if it ended by itself."""
        self.send(number)
        try:
            await asyncio.wait_for(self.wait(), seconds)
        except TimeoutError:
            self.kill()
            await self.wait()
            return False
        return True


def spawn(launch: Launch, *, output: int, stdin: int = subprocess.DEVNULL) -> Child:
    """Starts a child that receives its death signal when this process ends, even by SIGKILL."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("children are started from the main thread only")
    user = _nobody_arguments() if launch.run_as is RunAs.NOBODY else {}
    process = subprocess.Popen(
        launch.argv,
        cwd=launch.cwd,
        env=dict(launch.environment),
        stdin=stdin,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_before_exec(launch, os.getpid()),
        **user,
    )
    return Child(process)


async def run_to_end(launch: Launch, *, stdin: str = "", seconds: float = 60.0) -> Finished:
    """Runs a short-lived child. It is killed when the time is over or the caller is cancelled."""
    with _memory_file(stdin) as source, _memory_file() as sink:
        child = spawn(launch, stdin=source, output=sink)
        try:
            code = await asyncio.wait_for(child.wait(), seconds)
        except TimeoutError:
            code = -signal.SIGKILL
        finally:
            child.kill()
        return Finished(code, os.pread(sink, 1 << 20, 0).decode(errors="replace"))


def succeeds_in_fork(work: Callable[[], None]) -> bool:
    """Runs the work in a forked copy of this process; True unless it raised."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


def user_namespaces_work() -> bool:
    """True if this process may make the user namespace of `RunAs.NAMESPACED_NOBODY`."""

    def attempt() -> None:
        with contextlib.suppress(OSError):
            _enter_user_namespace()
            return
        os._exit(1)

    return succeeds_in_fork(attempt)


def describe_exit(code: int) -> str:
    """Describes how a process ended: the signal's name, or the exit code."""
    if code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit {code}"


@contextlib.contextmanager
def _memory_file(content: str = "") -> Iterator[int]:
    # Unlike a pipe it never fills up, so no reader is needed while the child runs.
    descriptor = os.memfd_create("toolmesh")
    try:
        os.pwrite(descriptor, content.encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _before_exec(launch: Launch, parent: int) -> Callable[[], None]:
    def prepare() -> None:
        if launch.run_as is RunAs.NAMESPACED_NOBODY:
            _enter_user_namespace()
        # After every change of identity, because such a change clears it.
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(launch.death_signal))
        if os.getppid() != parent:  # the runner died before the line above
            os._exit(1)

    return prepare


def _nobody_arguments() -> dict[str, Any]:
    entry = pwd.getpwnam("nobody")
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _enter_user_namespace() -> None:
    entry, uid, gid = pwd.getpwnam("nobody"), os.geteuid(), os.getegid()
    if _LIBC.unshare(_CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "user namespaces are refused")
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{entry.pw_uid} {uid} 1")
    _write("/proc/self/gid_map", f"{entry.pw_gid} {gid} 1")


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
