from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from localmesh.process.child import (
    Child,
    Launch,
    RunAs,
    describe_exit,
    run_to_end,
    spawn,
    succeeds_in_fork,
    user_namespaces_work,
)
from localmesh.process.orphans import is_running
from localmesh.settings import ROOT
from localmesh.tests.deadlines import eventually, eventually_async

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def python(program: str, run_as: RunAs = RunAs.OURSELVES) -> Launch:
    return Launch((sys.executable, "-c", program), Path("/"), dict(os.environ), run_as=run_as)


async def test_a_short_run_gives_its_code_and_its_output_and_reads_its_input() -> None:
    finished = await run_to_end(python("import sys; print(sys.stdin.read().upper()); sys.exit(3)"), stdin="words")
    assert (finished.code, finished.output) == (3, "WORDS\n")


async def test_a_run_that_takes_too_long_is_killed() -> None:
    assert (await run_to_end(python("import time; time.sleep(60)"), seconds=0.2)).code == -signal.SIGKILL


async def test_a_child_that_does_not_obey_is_killed_in_time(tmp_path: Path) -> None:
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    log = tmp_path / "log"
    with log.open("wb") as output:
        child = spawn(python(stubborn), output=output.fileno())
    await eventually_async(_once(lambda: "deaf" in log.read_text()))
    assert not await child.stop(signal.SIGTERM, 0.1)
    assert await child.wait() == -signal.SIGKILL


async def test_a_child_that_obeys_is_not_killed() -> None:
    child = _sleeper()
    assert await child.stop(signal.SIGTERM, 10)
    child.send(signal.SIGTERM)
    child.kill()
    assert not child.is_running


async def test_a_child_does_not_hear_the_terminals_signals() -> None:
    child = _sleeper()
    assert os.getsid(child.pid) == child.pid != os.getsid(0)
    child.kill()
    await child.wait()


@pytest.fixture
def private_file(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    (tmp_path / "file").write_text("kept")
    return tmp_path / "file"


@as_root
@pytest.mark.skipif(not user_namespaces_work(), reason="user namespaces are refused here")
async def test_root_is_nobody_inside_a_user_namespace_and_still_reads_its_files(private_file: Path) -> None:
    program = f"import os, pathlib; print(os.geteuid(), pathlib.Path({str(private_file)!r}).read_text())"
    finished = await run_to_end(python(program, RunAs.NAMESPACED_NOBODY))
    assert finished.output.split() == ["65534", "kept"]


@as_root
async def test_the_user_nobody_is_found() -> None:
    launch = Launch(("/usr/bin/id", "-un"), Path("/"), {}, run_as=RunAs.NOBODY)
    assert (await run_to_end(launch)).output.strip() == "nobody"


@pytest.mark.parametrize("run_as", list(RunAs))
def test_a_child_dies_with_a_parent_that_is_killed(run_as: RunAs) -> None:
    if run_as is not RunAs.OURSELVES and os.geteuid() != 0:
        pytest.skip("only root can become another user")
    if run_as is RunAs.NAMESPACED_NOBODY and not user_namespaces_work():
        pytest.skip("user namespaces are refused here")
    program = f"""
import asyncio, sys
from pathlib import Path
from localmesh.process.child import Launch, RunAs, spawn
async def main():
    child = spawn(Launch(("/bin/sleep", "60"), Path("/"), {{}}, run_as=RunAs.{run_as.name}), output=2)
    print(child.pid, flush=True)
    await child.wait()
asyncio.run(main())
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=ROOT)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    eventually(lambda: Path(f"/proc/{child}/cmdline").read_bytes().startswith(b"/bin/sleep"))
    parent.kill()
    parent.wait()
    eventually(lambda: not is_running(child))


async def test_children_come_from_the_main_thread_only() -> None:
    with pytest.raises(RuntimeError):
        await asyncio.to_thread(spawn, python(""), output=subprocess.DEVNULL)
    assert threading.current_thread() is threading.main_thread()


def test_work_in_a_fork_succeeds_or_fails_without_changing_this_process() -> None:
    changed: list[int] = []
    assert succeeds_in_fork(lambda: changed.append(1))
    assert changed == []
    assert not succeeds_in_fork(lambda: changed.remove(1))


def test_an_exit_is_described_by_its_signal_or_its_code() -> None:
    assert [describe_exit(code) for code in (-9, 1)] == ["SIGKILL", "exit 1"]


def _sleeper() -> Child:
    return spawn(Launch(("/bin/sleep", "60"), Path("/"), {}), output=subprocess.DEVNULL)


def _once(condition: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    async def ask() -> bool:
        return condition()

    return ask
