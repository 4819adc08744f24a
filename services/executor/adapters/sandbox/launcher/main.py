"""The launcher: a small process beside the executor that starts sandboxes and supervises them until they end.

Forking a large multi-threaded process is slow and blocks the event loop; this process is small. As the ancestor of
every sandbox it knows when the last process of each has ended. It exits with the executor, and no sandbox outlives it.

It exchanges JSON messages over one socket. In: `start` (with a file that holds the plan and the pipe ends), `terminate`
and `kill`. Out: `began`, and `ended` with the exit facts.
"""

from __future__ import annotations

import base64
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from services.executor.adapters.sandbox.launcher import child, syscalls
from services.executor.adapters.sandbox.launcher.cgroup import Cgroup, CgroupDir
from services.executor.adapters.sandbox.launcher.cgroup_hierarchy import remove_stale_cgroups
from services.executor.adapters.sandbox.launcher.lone_process import ForkCounter
from services.executor.adapters.sandbox.launcher.process_tree import children
from services.executor.adapters.sandbox.launcher.rlimits import BWRAP_PROCESSES
from services.executor.adapters.sandbox.launcher.supervised import SupervisedSandbox

MESSAGE_BYTES = 1 << 16
SHUTDOWN = b"{}"
"""Sent by an executor that shuts down in order and removes its own directories."""
_EXECUTOR_EXIT_SECONDS = 2.0
_FORK_LOOK_SECONDS = 0.025
"""Between looks for new processes of sandboxes that had one: what they may take until then passes their limit."""
_MAX_DESCRIPTORS = 5
"""File descriptors that a start request carries at most."""


class Launcher:
    """Starts sandboxes on request and reports how they end."""

    def __init__(self, control: socket.socket, config: dict[str, Any]) -> None:
        self._control, self._config = control, config
        self._poll = select.poll()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._running: dict[int, SupervisedSandbox] = {}
        self._reported: set[int] = set()
        self._users: dict[int, int] = {}
        # A random start: other executors on this machine use the same range, and limits count per user.
        self._next_user = int.from_bytes(os.urandom(4)) % (config["users"][1] if config["users"] else 1)
        self._unremoved_cgroups: list[Cgroup] = []
        self._connected, self._orderly_shutdown = True, False
        self._executor = os.pidfd_open(os.getppid())
        self._exclusive_users = bool(config["users"]) and config["users"][1] > 1
        self._parents = {controller: CgroupDir(*cgroup_dir) for controller, cgroup_dir in config["groups"].items()}
        # The filters of plans without and with `loopback`.
        self._filters = [_filter_file(encoded) for encoded in config["filters"]]
        self._forks, self._next_look = ForkCounter(), 0.0
        self._wakeup, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Serve until the executor disconnects and every sandbox has ended; then clean up."""
        syscalls.become_subreaper()
        self.watch(self._control.fileno(), select.POLLIN, self._listen)
        self.watch(self._wakeup, select.POLLIN, self._reap)
        while self._connected or self._running:
            self._wait()
        if not self._orderly_shutdown:
            self._clean_up_after_crash()

    def watch(self, descriptor: int, events: int, callback: Callable[[], None]) -> None:
        """Call back on events of a descriptor."""
        self._callbacks[descriptor] = callback
        self._poll.register(descriptor, events)

    def unwatch(self, descriptor: int) -> None:
        """Stop watching a descriptor."""
        if self._callbacks.pop(descriptor, None):
            self._poll.unregister(descriptor)

    def _wait(self) -> None:
        now = time.monotonic()
        due = min((sandbox.next_poll for sandbox in self._running.values()), default=float("inf"))
        lone = [sandbox for sandbox in self._running.values() if sandbox.is_lone]
        if lone:
            due = min(due, self._next_look)
        for descriptor, _ in self._poll.poll(None if due == float("inf") else max(0.0, due - now) * 1000 + 1):
            if callback := self._callbacks.get(descriptor):
                callback()
        now = time.monotonic()
        if lone and self._next_look <= now:
            self._next_look = now + _FORK_LOOK_SECONDS
            for sandbox in lone if self._forks.changed() else ():
                sandbox.look_for_company(now)
        for sandbox in list(self._running.values()):
            if sandbox.next_poll <= now:
                sandbox.check_limits(now)
        self._report()

    def _listen(self) -> None:
        try:
            message, received, _, _ = socket.recv_fds(
                self._control, MESSAGE_BYTES, _MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionError:
            # The executor ended with unread messages in its socket.
            message, received = b"", []
        if not message or message == SHUTDOWN:
            self._connected, self._orderly_shutdown = False, bool(message)
            self.unwatch(self._control.fileno())
            for sandbox in self._running.values():
                sandbox.kill()
            return
        request = json.loads(message)
        if "start" in request:
            self._start(request["start"], received)
        elif "terminate" in request:
            if running := self._running.get(request["terminate"]):
                running.terminate()
        elif running := self._running.get(request["kill"]):
            running.kill()

    def _start(self, number: int, received: list[int]) -> None:
        try:
            if not received:
                raise OSError("too many open files")
            plan_file, *ends = received
            plan = json.loads(os.pread(plan_file, os.fstat(plan_file).st_size, 0))
            if len(ends) != (4 if plan["has_events"] else 2):
                raise OSError("too many open files")
            self._running[number] = self._fork(number, plan, ends)
        except OSError as error:
            self._users.pop(number, None)
            self._send({"ended": number, "facts": {"failed": f"{type(error).__name__}: {error}"[:500]}})
        finally:
            _close(*received)

    def _fork(self, number: int, plan: dict[str, Any], pipe_ends: list[int]) -> SupervisedSandbox:
        group = self._create_cgroup(number, plan)
        # RLIMIT_NPROC counts per user: with an exclusive user it is set before the start, otherwise inside the user
        # namespace.
        limited = (group is not None and "pids" in group.controllers) or self._exclusive_users
        opened: list[int] = []
        try:
            from_stderr, stderr = _pipe(opened)
            from_status, status = _pipe(opened)
            block, unblock = (-1, -1) if limited else _pipe(opened)
            user = self._allocate_user(number)
            pid = os.fork()
            if pid == 0:
                stdin, stdout, *further = pipe_ends
                program = self._filters[plan["loopback"]]
                ends = child.ChildDescriptors(stdin, stdout, stderr, status, block, program, *further)
                child.exec_bwrap(self._config, plan, user, group, ends)
        except OSError:
            _close(*opened)
            self._unremoved_cgroups.extend([group] if group else [])
            raise
        _close(stderr, status, block)
        return SupervisedSandbox(plan, pid, group, (from_stderr, from_status, unblock), self.watch, self.unwatch)

    def _create_cgroup(self, number: int, plan: dict[str, Any]) -> Cgroup | None:
        if not self._parents:
            return None
        return Cgroup.create(
            self._parents,
            # Another launcher may have left groups in the same directory.
            f"{os.getpid()}-{number}",
            memory=plan["memory_bytes"],
            processes=plan["processes"] + BWRAP_PROCESSES,
            millicpus=plan["millicpus"],
        )

    def _allocate_user(self, number: int) -> int:
        """Return a host user that no other sandbox of this executor has; 0 to keep the current user."""
        if not self._config["users"]:
            return 0
        first, count = self._config["users"]
        taken = set(self._users.values())
        for _ in range(count):
            user: int = first + self._next_user
            self._next_user = (self._next_user + 1) % count
            if user not in taken or count == 1:
                self._users[number] = user
                return user
        raise OSError("no host user is free")

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._wakeup, 4096):
                continue
        with suppress(ChildProcessError):
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return
                for sandbox in self._running.values():
                    if pid in (sandbox.pid, sandbox.inner_pid):
                        sandbox.on_reaped(pid, status, usage)
                    if pid == sandbox.pid and not sandbox.inner_pid:
                        self._kill_orphans()

    def _kill_orphans(self) -> None:
        """Kill processes that bubblewrap started but had not reported when it ended. They are children of the launcher
        now."""
        known = {pid for sandbox in self._running.values() for pid in (sandbox.pid, sandbox.inner_pid)}
        for pid in set(children(os.getpid())) - known:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _report(self) -> None:
        """Report sandboxes that started or ended, and clean up after those that ended.

        Reaping for one may find the end of another that was already looked at. No further event announces it, so it
        looks again until none has ended.
        """
        while self._report_changes():
            continue

    def _report_changes(self) -> bool:
        """Return whether a sandbox had ended."""
        running = len(self._running)
        for number, sandbox in list(self._running.items()):
            if number not in self._reported and sandbox.start_known:
                self._reported.add(number)
                if sandbox.inner_pid:
                    self._send({"began": number})
            if sandbox.finished:
                self._reap()
                facts = sandbox.facts()
                del self._running[number]
                self._reported.discard(number)
                self._users.pop(number, None)
                if sandbox.group is not None:
                    self._unremoved_cgroups.append(sandbox.group)
                self._unremoved_cgroups = [group for group in self._unremoved_cgroups if not group.remove()]
                self._send({"ended": number, "facts": facts})
        return len(self._running) < running

    def _clean_up_after_crash(self) -> None:
        """Remove the cgroups of a killed executor. Its locks are released when it has ended."""
        select.select([self._executor], [], [], _EXECUTOR_EXIT_SECONDS)
        for folder in {os.path.dirname(cgroup_dir.path) for cgroup_dir in self._parents.values()}:  # noqa: PTH120
            remove_stale_cgroups(folder)

    def _send(self, message: dict[str, Any]) -> None:
        with suppress(ConnectionError):
            self._control.send(json.dumps(message).encode())


def _filter_file(encoded: str) -> int:
    """Return the descriptor of a file with a seccomp filter."""
    descriptor = os.memfd_create("filter")
    os.write(descriptor, base64.b64decode(encoded))
    return descriptor


def _pipe(opened: list[int]) -> tuple[int, int]:
    """Open a pipe and add both ends to `opened`."""
    ends = os.pipe2(os.O_CLOEXEC)
    opened.extend(ends)
    return ends


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        if descriptor >= 0:
            os.close(descriptor)


def main() -> None:
    """Serve on the socket whose descriptor is the only argument; its first message is the configuration."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    # A signal to the process group is meant for the executor; this process exits after it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Launcher(control, json.loads(control.recv(MESSAGE_BYTES))).serve()
