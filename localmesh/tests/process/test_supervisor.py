from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from localmesh.process import supervisor as module
from localmesh.process.child import Launch
from localmesh.process.orphans import is_running
from localmesh.process.part import Part, PartError
from localmesh.process.supervisor import Supervisor
from localmesh.tests.deadlines import eventually_async
from localmesh.view.progress import Event

# Writes its own process id when it is ready, so that the probe of one life never mistakes the file of another.
PROGRAM = "import os, signal, sys; open(sys.argv[1], 'w').write(str(os.getpid())); signal.pause()"


class Stage:
    """Parts that are small programs, and what a supervisor said about them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[Event] = []
        self.steps: list[str] = []

    def part(self, name: str, after: tuple[str, ...] = (), program: str = PROGRAM) -> Part:
        ready = self.folder / name

        async def probe() -> bool:
            return _is_alive(ready)

        launch = Launch((sys.executable, "-S", "-c", program, str(ready)), Path("/"), dict(os.environ))
        return Part(name, launch, probe, "127.0.0.1:0", after=after, prepare=self._step(f"prepare {name}"))

    def supervisor(self, *parts: Part, changed: Callable[[], None] = lambda: None) -> Supervisor:
        return Supervisor(parts, lambda name: self.folder / f"{name}.log", self.events.append, changed)

    def said(self, kind: str) -> list[str]:
        return [event.part for event in self.events if event.kind == kind]

    def _step(self, name: str) -> Callable[[], Awaitable[None]]:
        async def step() -> None:
            self.steps.append(name)

        return step


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


async def test_parts_start_in_order_and_stop_in_reverse(stage: Stage) -> None:
    parts = [stage.part("first"), stage.part("second", ("first",)), stage.part("third", ("first", "second"))]
    supervisor = stage.supervisor(*parts)
    await supervisor.start()
    assert stage.said("ready") == ["first", "second", "third"]
    await supervisor.stop()
    assert stage.said("stopped") == ["third", "second", "first"]
    assert all(member.pid is None for member in supervisor.members.values())


async def test_parts_that_need_nothing_of_each_other_start_together(stage: Stage) -> None:
    waiting = "import os, sys, time\nwhile not os.path.exists(sys.argv[1] + '.go'): time.sleep(0.01)\n" + PROGRAM
    slow, quick = stage.part("slow", program=waiting), stage.part("quick")

    async def release() -> None:
        (stage.folder / "slow.go").touch()

    supervisor = stage.supervisor(slow, replace(quick, provision=release))
    await supervisor.start()
    assert stage.said("ready") == ["quick", "slow"]
    await supervisor.stop()


async def test_a_part_that_is_killed_comes_back_on_its_own(stage: Stage) -> None:
    supervisor = stage.supervisor(stage.part("only"))
    await supervisor.start()
    first = supervisor.members["only"].pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await eventually_async(lambda: _said(stage, "back"))
    (event,) = [event for event in stage.events if event.kind == "back"]
    member = supervisor.members["only"]
    assert (event.text, event.restarts, member.restarts, member.ready) == ("SIGKILL", 1, 1, True)
    assert member.pid not in (None, first)
    assert stage.steps == ["prepare only", "prepare only"]
    await supervisor.stop()


async def test_a_part_that_is_killed_comes_back_though_nothing_can_be_written_down(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TELL_AGAIN_SECONDS", 0.02)
    told = list[tuple[int | None, bool]]()
    room = [True]

    def tell() -> None:
        if not room[0]:
            raise OSError(errno.ENOSPC, "the disk is full")
        member = supervisor.members["only"]
        told.append((member.pid, member.ready))

    supervisor = stage.supervisor(stage.part("only"), changed=tell)
    await supervisor.start()
    first = supervisor.members["only"].pid
    assert first is not None
    room[0] = False
    os.kill(first, signal.SIGKILL)
    await eventually_async(lambda: _said(stage, "back"))
    member = supervisor.members["only"]
    assert (member.restarts, member.ready, told[-1]) == (1, True, (first, True))
    room[0] = True
    await eventually_async(lambda: _equal(told[-1], (member.pid, True)))
    await supervisor.stop()
    assert member.pid is None


async def test_a_failed_attempt_leaves_no_process_beside_the_next(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_BACKOFF", 0.01)
    part, pids, faults = stage.part("only"), list[int | None](), [RuntimeError("no answer that anybody foresaw")]

    async def probe() -> bool:
        if pids and faults:
            pids.append(supervisor.members["only"].pid)
            raise faults.pop()
        return await part.probe()

    supervisor = stage.supervisor(replace(part, probe=probe))
    await supervisor.start()
    pids.append(supervisor.members["only"].pid)
    assert pids[0] is not None
    os.kill(pids[0], signal.SIGKILL)
    await eventually_async(lambda: _said(stage, "back"))
    assert pids[1] not in (None, supervisor.members["only"].pid)
    assert not is_running(pids[1] or 0)
    await supervisor.stop()


async def test_a_part_that_cannot_come_back_is_tried_ever_more_slowly(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_BACKOFF", 0.01)
    monkeypatch.setattr(module, "LONGEST_BACKOFF", 0.04)
    once = "import os, sys\nif os.path.exists(sys.argv[1]): sys.exit(4)\n" + PROGRAM
    supervisor = stage.supervisor(stage.part("only", program=once))
    await supervisor.start()
    pid = supervisor.members["only"].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await eventually_async(lambda: _said(stage, "died", times=4))
    waits = [event.seconds for event in stage.events if event.kind == "died"]
    assert waits[:4] == [0.02, 0.04, 0.04, 0.04]
    assert {event.text for event in stage.events if event.kind == "died"} == {"exit 4"}
    await supervisor.stop()
    assert supervisor.members["only"].pid is None


async def test_a_part_that_ends_at_once_fails_the_start_and_shows_its_log(stage: Stage) -> None:
    broken = "import sys; [print('line', n) for n in range(40)]; sys.exit(7)"
    supervisor = stage.supervisor(stage.part("well"), stage.part("broken", ("well",), broken))
    with pytest.raises(PartError):
        await supervisor.start()
    (event,) = [event for event in stage.events if event.kind == "failed"]
    assert (event.part, event.text) == ("broken", "exit 7")
    assert event.lines == tuple(f"line {number}" for number in range(25, 40))
    await supervisor.stop()
    assert stage.said("stopped") == ["well"]


async def test_only_the_lines_of_this_start_are_shown(stage: Stage) -> None:
    (stage.folder / "broken.log").write_text("of an earlier life\n" * 20)
    supervisor = stage.supervisor(stage.part("broken", program="import sys; print('mine'); sys.exit(7)"))
    with pytest.raises(PartError):
        await supervisor.start()
    (event,) = [event for event in stage.events if event.kind == "failed"]
    assert event.lines == ("mine",)


async def test_a_part_that_was_never_started_shows_no_lines(stage: Stage) -> None:
    async def break_down() -> None:
        raise RuntimeError("no room")

    (stage.folder / "only.log").write_text("of an earlier life\n")
    supervisor = stage.supervisor(replace(stage.part("only"), prepare=break_down))
    with pytest.raises(PartError):
        await supervisor.start()
    (event,) = [event for event in stage.events if event.kind == "failed"]
    assert event.lines == ()


async def test_a_part_that_is_never_ready_fails_the_start(stage: Stage) -> None:
    mute = replace(stage.part("mute", program="import signal; signal.pause()"), ready_seconds=0.2)
    supervisor = stage.supervisor(mute)
    with pytest.raises(PartError):
        await supervisor.start()
    await supervisor.stop()
    assert supervisor.members["mute"].pid is None


async def test_a_step_that_raises_fails_the_start(stage: Stage) -> None:
    async def break_down() -> None:
        raise RuntimeError("no room")

    supervisor = stage.supervisor(replace(stage.part("only"), provision=break_down))
    with pytest.raises(PartError):
        await supervisor.start()
    await supervisor.stop()
    assert supervisor.members["only"].pid is None


async def test_killing_ends_every_part_at_once(stage: Stage) -> None:
    deaf = "import signal; signal.signal(15, signal.SIG_IGN)\n" + PROGRAM.replace(
        "import os, signal, sys", "import os, sys"
    )
    supervisor = stage.supervisor(stage.part("deaf", program=deaf))
    await supervisor.start()
    supervisor.kill()
    await supervisor.stop()
    assert supervisor.members["deaf"].pid is None


def _is_alive(file: Path) -> bool:
    return file.exists() and file.read_text() != "" and is_running(int(file.read_text()))


async def _equal(one: object, other: object) -> bool:
    return one == other


async def _said(stage: Stage, kind: str, times: int = 1) -> bool:
    return len(stage.said(kind)) >= times
