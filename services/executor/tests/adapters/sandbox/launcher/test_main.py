"""The launcher, spoken to as the executor speaks to it, but without an event loop in between."""

from __future__ import annotations

import json
import os
import random
import resource
import select
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from libs.common.ids import new_id
from services.executor.adapters.sandbox.bubblewrap import environment
from services.executor.adapters.sandbox.bubblewrap.launcher_client import request_start, spawn_launcher
from services.executor.adapters.sandbox.launcher.main import MESSAGE_BYTES, SHUTDOWN
from services.executor.adapters.sandbox.port import Plan
from services.executor.adapters.sandbox.rootfs import interpreter_path
from services.executor.tests.sandboxes import processes_with

Launched = tuple["subprocess.Popen[bytes]", socket.socket]


@pytest.fixture
def prepared() -> Iterator[environment.BubblewrapEnvironment]:
    made = environment.prepare_environment("test", "preferred")
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
    """Ask for a process; return our ends of its pipes."""
    stdin, to_stdin = os.pipe()
    from_stdout, stdout = os.pipe()
    request_start(control, number, Plan(argv), stdin, stdout)
    os.close(stdin)
    os.close(stdout)
    return to_stdin, from_stdout


def heard(control: socket.socket) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(control.recv(MESSAGE_BYTES))
    return message


def test_it_tells_when_a_process_began_and_how_it_ended(launched: Launched) -> None:
    _, control = launched
    to_stdin, from_stdout = start(control, 5, "/bin/cat")
    assert heard(control) == {"began": 5}
    os.write(to_stdin, b"word")
    assert os.read(from_stdout, 100) == b"word"
    os.close(to_stdin)
    said = heard(control)
    assert (said["ended"], said["facts"]["code"], said["facts"]["killed"]) == (5, 0, False)
    assert os.read(from_stdout, 100) == b""
    os.close(from_stdout)


def test_it_ends_what_it_is_asked_to_end_and_nothing_else(launched: Launched) -> None:
    _, control = launched
    ends = [start(control, number, "/bin/cat") for number in (1, 2)]
    assert sorted(heard(control)["began"] for _ in range(2)) == [1, 2]
    control.send(json.dumps({"kill": 1}).encode())
    said = heard(control)
    assert (said["ended"], said["facts"]["killed"]) == (1, True)
    control.send(json.dumps({"kill": 1}).encode())
    os.write(ends[1][0], b"x")
    assert os.read(ends[1][1], 1) == b"x"
    for pair in ends:
        for end in pair:
            os.close(end)


@pytest.mark.parametrize("last_words", [SHUTDOWN, b""])
def test_it_ends_with_its_executor_and_takes_all_with_it(launched: Launched, last_words: bytes) -> None:
    process, control = launched
    to_stdin, from_stdout = start(control, 1, "/bin/cat")
    assert heard(control) == {"began": 1}
    if last_words:
        control.send(last_words)
    else:
        control.close()
    assert os.read(from_stdout, 1) == b""
    assert process.wait() == 0
    os.close(to_stdin)
    os.close(from_stdout)


def test_it_clears_up_after_an_executor_that_had_not_heard_everything(
    launched: Launched, prepared: environment.BubblewrapEnvironment
) -> None:
    """Whoever is killed with words unread leaves an error on the line, and no end of it."""
    process, control = launched
    to_stdin, from_stdout = start(control, 1, "/bin/cat")
    # Said, and never read.
    select.select([control], [], [])
    control.close()
    assert os.read(from_stdout, 1) == b""
    assert process.wait() == 0
    left = [group for place in prepared.config["groups"].values() for group in Path(place.folder).glob("*/")]
    assert left == []
    os.close(to_stdin)
    os.close(from_stdout)


def test_it_holds_no_end_of_anybodys_pipes(launched: Launched) -> None:
    """Or readers would wait for ever, and sandboxes could speak for each other."""
    process, control = launched
    ends = [start(control, number, "/bin/cat") for number in (1, 2)]
    for _ in ends:
        heard(control)
    ours = {os.fstat(end).st_ino for pair in ends for end in pair}
    theirs = {entry.stat().st_ino for entry in Path(f"/proc/{process.pid}/fd").iterdir()}
    assert ours & theirs == set()
    for pair in ends:
        for end in pair:
            os.close(end)


@pytest.mark.parametrize("room", range(9))
def test_whoever_finds_no_file_to_open_fails_alone(launched: Launched, room: int) -> None:
    """Wherever on the way it is that nothing more can be opened; what runs goes on, and so does the launcher."""
    process, control = launched
    ends = start(control, 1, "/bin/cat")
    assert heard(control) == {"began": 1}
    held = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
    usual = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (held + room, usual[1]))
    for end in start(control, 2, "/bin/cat"):
        os.close(end)
    said = heard(control)
    while "ended" not in said:
        said = heard(control)
    assert said["ended"] == 2
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, usual)
    os.write(ends[0], b"x")
    assert os.read(ends[1], 1) == b"x"
    for end in start(control, 3, "/bin/cat"):
        os.close(end)
    assert (heard(control), heard(control)["ended"]) == ({"began": 3}, 3)
    assert len(list(Path(f"/proc/{process.pid}/fd").iterdir())) == held
    for end in ends:
        os.close(end)


@pytest.mark.parametrize("cgroups", ["preferred", "off"])
def test_what_is_ended_while_it_begins_does_not_begin(cgroups: str) -> None:
    """Bubblewrap may be ended after it started a process and before it told of it or bound it to its own life."""
    made = environment.prepare_environment("test", cgroups)
    process, control = spawn_launcher(made.config)
    try:
        end_sixty_at_their_beginning(control, new_id())
    finally:
        control.send(SHUTDOWN)
        process.wait()
        control.close()
        made.close()


def end_sixty_at_their_beginning(control: socket.socket, marker: str) -> None:
    begins = random.Random(7)
    for number in range(1, 61):
        argv = (interpreter_path(), "-I", "-S", "-c", "import signal; signal.pause()", marker)
        for end in start(control, number, *argv):
            os.close(end)
        ready = time.monotonic() + begins.random() * 0.008
        while time.monotonic() < ready:
            os.sched_yield()
        control.send(json.dumps({"kill": number}).encode())
        while "ended" not in heard(control):
            continue
        assert processes_with(marker) == []
