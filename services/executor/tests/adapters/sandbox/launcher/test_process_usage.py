from __future__ import annotations

import os
import signal
import subprocess
import sys

from services.executor.adapters.sandbox.launcher import process_usage

MIB = 1 << 20
FAMILY = """
import os, signal, sys
shared = bytearray(b'x' * (30 << 20))
pipe = os.pipe()
for _ in range(3):
    if os.fork() == 0:
        sum(range(2_000_000)); os.write(pipe[1], b'x'); signal.pause()
for _ in range(3): os.read(pipe[0], 1)
sys.stdout.write('x'); sys.stdout.flush()
signal.pause()
"""


def family() -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", FAMILY], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.read(1) == b"x"
    return process


def test_cpu_time_and_memory_of_a_process_tree_are_added_up() -> None:
    with family() as process:
        try:
            assert process_usage.cpu_seconds(process.pid) > 0
            # Four processes share the same pages: counted four times at first, and once if the sum exceeds the limit.
            assert process_usage.memory_bytes(process.pid, 1 << 40) > 120 * MIB
            assert 30 * MIB < process_usage.memory_bytes(process.pid, 100 * MIB) < 100 * MIB
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_an_ended_process_uses_nothing() -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    assert (process_usage.cpu_seconds(gone.pid), process_usage.memory_bytes(gone.pid, 0)) == (0.0, 0)
