"""What processes use, by the kernel's own account."""

from __future__ import annotations

import os
import subprocess
import sys

from bench.environment.machine import cpu_seconds, family, resident_bytes, ticks

# More than is asked for: what children used is counted in whole ticks, of two kinds.
_BURN = "import time\nwhile time.process_time() < 0.3: pass"


def test_what_an_ended_child_used_stays_counted() -> None:
    before = cpu_seconds([os.getpid()])
    subprocess.run([sys.executable, "-c", _BURN], check=True)
    assert cpu_seconds([os.getpid()]) - before >= 0.2


def test_a_process_that_is_gone_uses_nothing() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert cpu_seconds([child.pid]) == 0
    assert resident_bytes([child.pid]) == 0


def test_a_family_is_a_process_and_everything_below() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert child.pid in family(os.getpid())
    finally:
        child.communicate(b"\n")


def test_stolen_time_is_reported_as_a_share() -> None:
    before = ticks("cpu 100 0 50 800 0 0 0 50 70 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
    after = ticks("cpu 150 0 50 830 0 0 0 70 90 0\n")
    assert before == (1000, 50)
    assert after.stolen_since(before) == 0.2
    assert before.stolen_since(before) == 0.0


def test_a_machine_tells_its_time() -> None:
    assert 0 <= ticks().stolen <= ticks().all
