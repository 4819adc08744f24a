"""The launcher: a small process beside the executor that starts sandboxes and sees them to their end. Standard library only.

Starting a process from a large one with many threads is slow and stops the event loop; this one is small and has nothing else to do.
It is the ancestor of every sandbox, so it knows when the last process of each is gone. It ends when the executor does, however that
ends, and nothing outlives it.

Speaks messages of JSON over one socket. In: `start` (with the ends of two pipes and a file that holds the plan) and `kill`. Out:
`began`, and `ended` with the facts.
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
from services.executor.adapters.sandbox.launcher.process_tree import children
from services.executor.adapters.sandbox.launcher.rlimits import BWRAP_PROCESSES
from services.executor.adapters.sandbox.launcher.supervised import SupervisedSandbox

MESSAGE_BYTES = 1 << 16
SHUTDOWN = b"{}"
"""What an executor says that ends in order and clears up by itself."""
_EXECUTOR_EXIT_SECONDS = 2.0
_DESCRIPTORS_PER_START = 3
"""How many open files come with a request to start."""


class Launcher:
    """Starts sandboxes as asked, and tells how they end."""

    def __init__(self, control: socket.socket, config: dict[str, Any]) -> None:
        self._control, self._config = control, config
        self._poll = select.poll()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._running: dict[int, SupervisedSandbox] = {}
        self._begun: set[int] = set()
        self._users: dict[int, int] = {}
        # Anywhere in the range: other executors on this machine use it too, and what is limited is counted for each user.
        self._next_user = int.from_bytes(os.urandom(4)) % (config["users"][1] if config["users"] else 1)
        self._dust: list[Cgroup] = []
        self._asked, self._dismissed = True, False
        self._executor = os.pidfd_open(os.getppid())
        self._alone = bool(config["users"]) and config["users"][1] > 1
        self._parents = {what: CgroupDir(*place) for what, place in config["groups"].items()}
        self._program = os.memfd_create("filter")
        os.write(self._program, base64.b64decode(config["filter"]))
        self._woken, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Work until nobody can ask any more, then leave nothing behind."""
        syscalls.become_subreaper()
        self.watch(self._control.fileno(), select.POLLIN, self._listen)
        self.watch(self._woken, select.POLLIN, self._reap)
        while self._asked or self._running:
            self._wait()
        if not self._dismissed:
            self._clear_after_the_dead()

    def watch(self, descriptor: int, events: int, callback: Callable[[], None]) -> None:
        """Call back whenever something happens to a descriptor."""
        self._callbacks[descriptor] = callback
        self._poll.register(descriptor, events)

    def forget(self, descriptor: int) -> None:
        """Watch a descriptor no more."""
        if self._callbacks.pop(descriptor, None):
            self._poll.unregister(descriptor)

    def _wait(self) -> None:
        now = time.monotonic()
        due = min((one.next_poll for one in self._running.values()), default=float("inf"))
        for descriptor, _ in self._poll.poll(None if due == float("inf") else max(0.0, due - now) * 1000 + 1):
            if callback := self._callbacks.get(descriptor):
                callback()
        now = time.monotonic()
        for one in list(self._running.values()):
            if one.next_poll <= now:
                one.look(now)
        self._tell()

    def _listen(self) -> None:
        try:
            message, received, _, _ = socket.recv_fds(
                self._control, MESSAGE_BYTES, _DESCRIPTORS_PER_START, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionError:
            # It ended with something unread that we had told it.
            message, received = b"", []
        if not message or message == SHUTDOWN:
            self._asked, self._dismissed = False, bool(message)
            self.forget(self._control.fileno())
            for every in self._running.values():
                every.kill()
            return
        asked = json.loads(message)
        if "start" in asked:
            self._start(asked["start"], received)
        elif one := self._running.get(asked["kill"]):
            one.kill()

    def _start(self, number: int, received: list[int]) -> None:
        try:
            if len(received) != _DESCRIPTORS_PER_START:
                raise OSError("no more files can be opened")
            stdin, stdout, written = received
            plan = json.loads(os.pread(written, os.fstat(written).st_size, 0))
            self._running[number] = self._fork(number, plan, stdin, stdout)
        except OSError as error:
            self._users.pop(number, None)
            self._send({"ended": number, "facts": {"failed": f"{type(error).__name__}: {error}"[:500]}})
        finally:
            _close(*received)

    def _fork(self, number: int, plan: dict[str, Any], stdin: int, stdout: int) -> SupervisedSandbox:
        group = self._group(number, plan)
        # A user that no other sandbox has can be limited before it begins; one that is shared, only in its own namespace.
        limited = (group is not None and "pids" in group.controllers) or self._alone
        opened: list[int] = []
        try:
            heard, stderr = _pipe(opened)
            told, status = _pipe(opened)
            block, unblock = (-1, -1) if limited else _pipe(opened)
            user = self._user(number)
            pid = os.fork()
            if pid == 0:
                ends = child.ChildDescriptors(stdin, stdout, stderr, status, block, self._program)
                child.exec_bwrap(self._config, plan, user, group, ends)
        except OSError:
            _close(*opened)
            self._dust.extend([group] if group else [])
            raise
        _close(stderr, status, block)
        return SupervisedSandbox(plan, pid, group, (heard, told, unblock), self.watch, self.forget)

    def _group(self, number: int, plan: dict[str, Any]) -> Cgroup | None:
        if not self._parents:
            return None
        return Cgroup.create(
            self._parents,
            # Another launcher may have left groups in the same place.
            f"{os.getpid()}-{number}",
            memory=plan["memory_bytes"],
            processes=plan["processes"] + BWRAP_PROCESSES,
            millicpus=plan["millicpus"],
        )

    def _user(self, number: int) -> int:
        """A host user that no other sandbox of this executor has; 0 to stay who we are."""
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
        raise OSError("no user is free")

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._woken, 4096):
                continue
        with suppress(ChildProcessError):
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return
                for one in self._running.values():
                    if pid in (one.pid, one.inner_pid):
                        one.reaped(pid, status, usage)
                    if pid == one.pid and not one.inner_pid:
                        self._end_orphans()

    def _end_orphans(self) -> None:
        """End what bubblewrap had started and not told of when it ended. It is ours now, and nobody else's child is."""
        known = {pid for one in self._running.values() for pid in (one.pid, one.inner_pid)}
        for pid in set(children(os.getpid())) - known:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _tell(self) -> None:
        """Say who has begun and who has ended, and clear away after those."""
        for number, one in list(self._running.items()):
            if number not in self._begun and one.settled:
                self._begun.add(number)
                if one.inner_pid:
                    self._send({"began": number})
            if one.over:
                self._reap()
                facts = one.facts()
                del self._running[number]
                self._begun.discard(number)
                self._users.pop(number, None)
                if one.group is not None:
                    self._dust.append(one.group)
                self._dust = [group for group in self._dust if not group.remove()]
                self._send({"ended": number, "facts": facts})

    def _clear_after_the_dead(self) -> None:
        """Remove what an executor that was killed cannot remove any more: its locks go with its last breath."""
        select.select([self._executor], [], [], _EXECUTOR_EXIT_SECONDS)
        for folder in {os.path.dirname(place.folder) for place in self._parents.values()}:  # noqa: PTH120
            remove_stale_cgroups(folder)

    def _send(self, message: dict[str, Any]) -> None:
        with suppress(ConnectionError):
            self._control.send(json.dumps(message).encode())


def _pipe(opened: list[int]) -> tuple[int, int]:
    """Open a pipe, and note its ends among those that are open."""
    ends = os.pipe2(os.O_CLOEXEC)
    opened.extend(ends)
    return ends


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        if descriptor >= 0:
            os.close(descriptor)


def main() -> None:
    """Serve on the socket whose number is the only argument; its first message is the configuration."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    # Whoever stops the executor's group of processes stops the executor; this process ends when that has ended.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Launcher(control, json.loads(control.recv(MESSAGE_BYTES))).serve()
