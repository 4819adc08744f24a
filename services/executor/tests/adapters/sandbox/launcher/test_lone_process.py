"""What is seen of a sandbox's only process, and when it is not alone any more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.executor.adapters.sandbox.launcher.lone_process import ForkCounter, LoneProcess

# An init that adopts orphans and its child, which does what it reads and answers.
INIT = """
import ctypes, os, signal, sys, threading
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
if os.fork():
    signal.pause()
held = threading.Event()
def orphan():
    if os.fork() == 0:
        if os.fork() == 0:
            os.write(1, b'x'); signal.pause()
        os._exit(0)
    os.wait()
def child():
    if os.fork() == 0:
        os.write(1, b'x'); signal.pause()
def thread():
    threading.Thread(target=held.wait, daemon=True).start()
    os.write(1, b'x')
os.write(1, b'x')
for line in sys.stdin:
    globals()[line.strip()]()
"""


@pytest.fixture
def init() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-I", "-S", "-c", INIT]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.read(1) == b"x"
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def order(init: subprocess.Popen[bytes], what: bytes) -> None:
    assert init.stdin is not None
    assert init.stdout is not None
    init.stdin.write(what + b"\n")
    assert init.stdout.read(1) == b"x"


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("company", [b"child", b"orphan", b"thread"])
def test_company_of_every_kind_is_seen(init: subprocess.Popen[bytes], company: bytes) -> None:
    lone = LoneProcess.find(init.pid)
    assert lone is not None
    assert lone.is_alone()
    order(init, company)
    assert not lone.is_alone()
    assert LoneProcess.find(init.pid) is None
    lone.close()
    lone.close()


def test_an_ended_process_is_not_alone(init: subprocess.Popen[bytes]) -> None:
    lone = LoneProcess.find(init.pid)
    assert lone is not None
    os.killpg(init.pid, signal.SIGKILL)
    init.wait()
    assert not lone.is_alone()
    assert LoneProcess.find(init.pid) is None
    lone.close()


def test_no_file_stays_open(init: subprocess.Popen[bytes]) -> None:
    before = open_files()
    order(init, b"child")
    assert LoneProcess.find(init.pid) is None
    with pytest.raises(OSError, match="No such"):
        LoneProcess(init.pid, 1 << 30)
    assert open_files() == before


def test_a_started_process_is_noticed_and_a_foreign_file_not_trusted(tmp_path: Path) -> None:
    counter = ForkCounter()
    counter.changed()
    subprocess.run(["true"], check=True)
    assert counter.changed()
    (tmp_path / "loadavg").write_text("0.00 0.00 0.00 1/1 7\n")
    foreign = ForkCounter(str(tmp_path / "loadavg"))
    assert foreign.changed()
    assert foreign.changed()
