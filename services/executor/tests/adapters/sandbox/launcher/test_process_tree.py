from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import pytest

from services.executor.adapters.sandbox.launcher.process_tree import descendants, kill_all

FAMILY = """
import os, signal, sys, threading
for _ in range(2):
    if os.fork() == 0:
        os.fork()
        signal.pause()
def elsewhere():
    if os.fork() == 0: signal.pause()
thread = threading.Thread(target=elsewhere); thread.start()
while len(os.listdir('/proc/self/task')) > 1 and not thread.join(0) and thread.is_alive(): continue
sys.stdout.write('x'); sys.stdout.flush()
signal.pause()
"""


def family() -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", FAMILY], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.read(1) == b"x"
    return process


def settled(pid: int, count: int) -> list[int]:
    """Wait until a process has `count` descendants."""
    while len(found := descendants(pid)) < count:
        os.sched_yield()
    return found


def test_descendants_include_grandchildren_and_children_of_threads() -> None:
    with family() as process:
        found = settled(process.pid, 5)
        assert len(found) == 5
        assert process.pid not in found
        kill_all(lambda: [process.pid, *descendants(process.pid)])


def test_kill_all_kills_every_member() -> None:
    with family() as process:
        found = settled(process.pid, 5)
        held = [os.pidfd_open(pid) for pid in found]
        kill_all(lambda: [*found, process.pid])
        assert process.wait() == -signal.SIGKILL
        for descriptor in held:
            os.set_blocking(descriptor, True)
            # A pidfd is readable once its process has ended.
            assert select.select([descriptor], [], [], 30)[0]
            os.close(descriptor)


def test_kill_all_skips_processes_that_are_no_longer_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its PID may belong to another process by now."""
    told: list[int] = []
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda descriptor, _: told.append(descriptor))
    with subprocess.Popen(["sleep", "600"]) as bystander:
        answers = iter([[bystander.pid], [], []])
        kill_all(lambda: next(answers))
        bystander.kill()
    assert told == []


def test_kill_all_ignores_ended_processes() -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    kill_all(lambda: [gone.pid])
    assert descendants(gone.pid) == []
