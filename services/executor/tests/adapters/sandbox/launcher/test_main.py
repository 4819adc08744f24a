"""The launcher process, driven over its socket without an event loop."""

from __future__ import annotations

import json
import os
import random
import resource
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from libs.common.ids import new_id
from services.executor.adapters.sandbox.bubblewrap import environment
from services.executor.adapters.sandbox.bubblewrap.launcher_client import request_start, spawn_launcher
from services.executor.adapters.sandbox.launcher.cgroup_hierarchy import CgroupPolicy
from services.executor.adapters.sandbox.launcher.main import MESSAGE_BYTES, SHUTDOWN
from services.executor.adapters.sandbox.port import Plan
from services.executor.adapters.sandbox.rootfs import interpreter_path
from services.executor.tests.sandboxes import processes_with

Launched = tuple["subprocess.Popen[bytes]", socket.socket]


@pytest.fixture
def prepared() -> Iterator[environment.BubblewrapEnvironment]:
    made = environment.prepare_environment("test", CgroupPolicy("preferred"))
    yield made
    made.close()


@pytest.fixture
def launched(prepared: environment.BubblewrapEnvironment) -> Iterator[Launched]:
    process, control = spawn_launcher(prepared.config)
    yield process, control
    control.close()
    process.kill()
    process.wait()


def start(control: socket.socket, number: int, *argv: str) -> tuple[int, int]:
    """Request a process; return the executor's ends of its pipes."""
    stdin, to_stdin = os.pipe()
    from_stdout, stdout = os.pipe()
    request_start(control, number, Plan(argv), [stdin, stdout])
    os.close(stdin)
    os.close(stdout)
    return to_stdin, from_stdout


def receive(control: socket.socket) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(control.recv(MESSAGE_BYTES))
    return message


def test_launcher_reports_start_and_end_of_a_process(launched: Launched) -> None:
    _, control = launched
    to_stdin, from_stdout = start(control, 5, "/bin/cat")
    assert receive(control) == {"began": 5}
    os.write(to_stdin, b"word")
    assert os.read(from_stdout, 100) == b"word"
    os.close(to_stdin)
    message = receive(control)
    assert (message["ended"], message["facts"]["code"], message["facts"]["killed"]) == (5, 0, False)
    assert os.read(from_stdout, 100) == b""
    os.close(from_stdout)


def test_launcher_kills_only_the_requested_sandbox(launched: Launched) -> None:
    _, control = launched
    ends = [start(control, number, "/bin/cat") for number in (1, 2)]
    assert sorted(receive(control)["began"] for _ in range(2)) == [1, 2]
    control.send(json.dumps({"kill": 1}).encode())
    message = receive(control)
    assert (message["ended"], message["facts"]["killed"]) == (1, True)
    control.send(json.dumps({"kill": 1}).encode())
    os.write(ends[1][0], b"x")
    assert os.read(ends[1][1], 1) == b"x"
    for pair in ends:
        for end in pair:
            os.close(end)


@pytest.mark.parametrize("shutdown", [SHUTDOWN, b""])
def test_launcher_and_sandboxes_end_with_the_executor(launched: Launched, shutdown: bytes) -> None:
    process, control = launched
    to_stdin, from_stdout = start(control, 1, "/bin/cat")
    assert receive(control) == {"began": 1}
    if shutdown:
        control.send(shutdown)
    else:
        control.close()
    assert os.read(from_stdout, 1) == b""
    assert process.wait() == 0
    os.close(to_stdin)
    os.close(from_stdout)


def test_launcher_cleans_up_after_an_executor_with_unread_messages(
    launched: Launched, prepared: environment.BubblewrapEnvironment
) -> None:
    """A peer that dies with unread messages causes ECONNRESET instead of an end of stream."""
    process, control = launched
    to_stdin, from_stdout = start(control, 1, "/bin/cat")
    # The message arrives and is never read.
    select.select([control], [], [])
    control.close()
    assert os.read(from_stdout, 1) == b""
    assert process.wait() == 0
    left = [group for cgroup_dir in prepared.config["groups"].values() for group in Path(cgroup_dir.path).glob("*/")]
    assert left == []
    os.close(to_stdin)
    os.close(from_stdout)


def test_launcher_keeps_no_pipe_ends_open(launched: Launched) -> None:
    """Otherwise readers would wait forever, and sandboxes could write to each other's pipes."""
    process, control = launched
    ends = [start(control, number, "/bin/cat") for number in (1, 2)]
    for _ in ends:
        receive(control)
    ours = {os.fstat(end).st_ino for pair in ends for end in pair}
    theirs = {entry.stat().st_ino for entry in Path(f"/proc/{process.pid}/fd").iterdir()}
    assert ours & theirs == set()
    for pair in ends:
        for end in pair:
            os.close(end)


def count_descriptors(process: subprocess.Popen[bytes]) -> int:
    return len(list(Path(f"/proc/{process.pid}/fd").iterdir()))


@pytest.mark.parametrize("room", range(9))
def test_running_out_of_descriptors_fails_only_that_start(launched: Launched, room: int) -> None:
    """At any step of the start; running sandboxes and the launcher continue."""
    process, control = launched
    ends = start(control, 1, "/bin/cat")
    assert receive(control) == {"began": 1}
    held = count_descriptors(process)
    usual = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (held + room, usual[1]))
    for end in start(control, 2, "/bin/cat"):
        os.close(end)
    message = receive(control)
    while "ended" not in message:
        message = receive(control)
    assert message["ended"] == 2
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, usual)
    os.write(ends[0], b"x")
    assert os.read(ends[1], 1) == b"x"
    for end in start(control, 3, "/bin/cat"):
        os.close(end)
    assert (receive(control), receive(control)["ended"]) == ({"began": 3}, 3)
    # The launcher closes the last one after its report. What it was reading for a moment is in the count of before.
    deadline = time.monotonic() + 60
    while count_descriptors(process) > held:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for end in ends:
        os.close(end)


@pytest.mark.parametrize("cgroups", ["preferred", "off"])
def test_a_sandbox_killed_while_starting_leaves_no_process(cgroups: str) -> None:
    """BubblewrapSandbox may be killed after it forked and before it reported the child or set its parent-death
    signal."""
    made = environment.prepare_environment("test", CgroupPolicy(cgroups))
    process, control = spawn_launcher(made.config)
    try:
        kill_sixty_while_starting(control, new_id())
    finally:
        control.send(SHUTDOWN)
        process.wait()
        control.close()
        made.close()


def kill_sixty_while_starting(control: socket.socket, marker: str) -> None:
    delays = random.Random(7)
    for number in range(1, 61):
        argv = (interpreter_path(), "-I", "-S", "-c", "import signal; signal.pause()", marker)
        for end in start(control, number, *argv):
            os.close(end)
        ready = time.monotonic() + delays.random() * 0.008
        while time.monotonic() < ready:
            os.sched_yield()
        control.send(json.dumps({"kill": number}).encode())
        while "ended" not in receive(control):
            continue
        assert processes_with(marker) == []


LATE_END = """
import socket
from types import SimpleNamespace
from services.executor.adapters.sandbox.launcher.main import Launcher

ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
launcher = Launcher(theirs, {"users": None, "groups": {}, "filters": []})
def sandbox(finished):
    return SimpleNamespace(finished=finished, start_known=True, inner_pid=1, group=None, facts=dict)
late, ended = sandbox(False), sandbox(True)
launcher._running = {1: late, 2: ended}
# Reaping for the second finds the end of the first.
launcher._reap = lambda: setattr(late, "finished", True)
launcher._report()
assert launcher._running == {}, launcher._running
"""


def test_an_end_that_is_found_while_another_is_reported_is_reported_too() -> None:
    subprocess.run([sys.executable, "-c", LATE_END], check=True, timeout=120)
