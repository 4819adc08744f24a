from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from localmesh.process.orphans import age_seconds, is_running, remember_children, start_ticks, wait_for_orphans
from localmesh.state.files import write_json


@pytest.fixture
def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["/bin/sleep", "60"])


async def test_a_child_that_stays_is_killed(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    record = tmp_path / "children.json"
    remember_children(record, {"sleeper": sleeper.pid})
    assert await wait_for_orphans(record, seconds=0.1) == ["sleeper"]
    assert sleeper.wait() == -signal.SIGKILL


async def test_a_process_that_only_has_the_number_is_left_alone(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    record = tmp_path / "children.json"
    write_json(record, {"postgres": [sleeper.pid, 1]})
    assert await wait_for_orphans(record, seconds=0.1) == []
    assert sleeper.poll() is None
    sleeper.kill()
    sleeper.wait()


async def test_no_record_means_no_leftovers(tmp_path: Path) -> None:
    assert await wait_for_orphans(tmp_path / "none", seconds=0.1) == []


def test_a_process_that_only_waits_to_be_reaped_does_not_run(sleeper: subprocess.Popen[bytes]) -> None:
    assert is_running(sleeper.pid)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert not is_running(sleeper.pid)
    sleeper.wait()
    assert start_ticks(sleeper.pid) is None
    assert age_seconds(sleeper.pid) == 0.0


def test_this_process_has_an_age() -> None:
    assert age_seconds(os.getpid()) > 0
