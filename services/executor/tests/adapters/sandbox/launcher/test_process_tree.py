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
    """Wait until a process has so many descendants."""
    while len(found := descendants(pid)) < count:
        os.sched_yield()
    return found


def test_children_of_children_and_of_threads_are_found() -> None:
    with family() as process:
        found = settled(process.pid, 5)
        assert len(found) == 5
        assert process.pid not in found
        kill_all(lambda: [process.pid, *descendants(process.pid)])


def test_everyone_is_ended_at_once() -> None:
    with family() as process:
        found = settled(process.pid, 5)
        held = [os.pidfd_open(pid) for pid in found]
        kill_all(lambda: [*found, process.pid])
        assert process.wait() == -signal.SIGKILL
        for descriptor in held:
            os.set_blocking(descriptor, True)
            # Readable once it has ended, whoever waits for it.
            assert select.select([descriptor], [], [], 30)[0]
            os.close(descriptor)


def test_who_left_the_crowd_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that no longer belongs to it may mean somebody else by now."""
    told: list[int] = []
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda descriptor, _: told.append(descriptor))
    with subprocess.Popen(["sleep", "600"]) as bystander:
        answers = iter([[bystander.pid], [], []])
        kill_all(lambda: next(answers))
        bystander.kill()
    assert told == []


def test_nobody_is_ended_who_is_not_there() -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    kill_all(lambda: [gone.pid])
    assert descendants(gone.pid) == []
