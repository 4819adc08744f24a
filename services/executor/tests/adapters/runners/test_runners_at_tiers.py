"""The runners in every sandbox of this machine, with the same guarantees."""

from __future__ import annotations

import asyncio
import os
import secrets
import stat
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from libs.common.errors import Reason
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.factory import RunnerConfig, SandboxedRunners
from services.executor.adapters.runners.worker.output import OutputCollector
from services.executor.adapters.sandbox.port import Sandbox
from services.executor.domain.tool import FOLDER, Access, Effect
from services.executor.domain.volumes import Volume
from services.executor.tests.packing import MIB, a_change, command_tool, confined, python_tool, work
from services.executor.tests.running import PACKS, Running, own_tmp, processes_with
from services.executor.tests.sandboxes import sandbox
from services.executor.tests.waiting import until

__all__ = ["own_tmp", "sandbox"]


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.txt").write_text("a")
    return folder


@pytest.fixture
async def running(sandbox: Sandbox, tmp_path: Path, own_tmp: Path, volume: Path) -> AsyncIterator[Running]:
    log = tmp_path / "log"
    descriptor = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    tier = sandbox.name.partition("/")[0]
    config = RunnerConfig(packs=[PACKS], volumes={"files": Volume(volume, shared=True)})
    runners = SandboxedRunners({tier: sandbox}, config, Log("executor", descriptor=descriptor))
    await runners.start()
    yield Running(runners, log)
    await runners.stop()
    os.close(descriptor)


def tool(name: str, **reach: Any) -> Any:
    return python_tool(f"tricks/{name}", confinement=confined(**reach))


async def test_a_worker_is_warm_clean_and_used_by_one_tenant(running: Running) -> None:
    mess = tool("plain:mess")
    left = await running.value(mess, work(do="litter"))
    found = await running.value(mess, work(do="found"))
    nothing = {"tmp": [], "environment": False, "timer": 0, "folder": "/tmp", "others": []}
    assert found == {"token": left["token"], **nothing}
    assert (await running.value(mess, work("bolt", do="found")))["token"] != left["token"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("hostile:devours", Reason.TOOL_OUT_OF_MEMORY),
        ("hostile:crashes", Reason.TOOL_CRASHED),
        ("hostile:exits", Reason.TOOL_CRASHED),
        ("plain:leaves", Reason.EXECUTION_FAILED),
    ],
)
async def test_each_failure_has_its_own_error(running: Running, name: str, reason: Reason) -> None:
    assert (await running.failure(tool(name), work(code=3))).reason is reason
    await until(lambda: len(running.pool) == 0)


async def test_a_canceled_call_leaves_no_process(running: Running) -> None:
    marker = f"9999{secrets.randbelow(10**12)}"
    begun = asyncio.Event()

    def begin() -> float:
        begun.set()
        return 60.0

    asked = msgspec.structs.replace(work(marker=marker), on_begin=begin)
    run = asyncio.create_task(running.value(tool("plain:waits"), asked))
    # A worker that is canceled while it starts goes on, and serves the next call.
    await begun.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert processes_with(marker) == []
    await until(lambda: len(running.pool) == 0)


async def test_the_lines_of_a_call_arrive_while_it_runs(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    said, stopped, arrived = work(say="call 0", how="print"), work(say="call 1", how="hang"), asyncio.Event()
    await running.value(tool("chatty:chats"), said)
    assert [line.text for line in said.notes.lines][1:4] == ["out call 0", "err call 0", "logged call 0"]
    add = OutputCollector.add

    def add_and_tell(collector: OutputCollector, frame: dict[str, Any]) -> None:
        add(collector, frame)
        arrived.set()

    monkeypatch.setattr(OutputCollector, "add", add_and_tell)
    run = asyncio.create_task(running.value(tool("chatty:chats"), stopped))
    await arrived.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert [line.text for line in stopped.notes.lines] == ["out call 1"]


async def test_a_volume_is_changed_only_by_a_commit(running: Running, volume: Path) -> None:
    writer = tool("hostile:writes", access=Access.FILES, reads=("files",), writes=("files",))
    steps = [{"do": "write", "path": "sub/b.txt", "text": "b"}, {"do": "hide", "path": "a.txt", "text": "!"}]
    ran = await running(writer, work(volume="files", steps=steps))
    assert ran.effects[1:] == (
        Effect("file:files/sub", "create", True, "", FOLDER),
        a_change("file:files/sub/b.txt", "create", None, "b"),
    )
    assert (ran.effects[0].resource, ran.effects[0].operation) == ("file:files/a.txt", "update")
    assert (volume / "a.txt").read_text() == "a"
    assert ran.commit is not None
    await ran.commit()
    assert (volume / "a.txt").read_text() == "!"
    assert (volume / "sub" / "b.txt").read_text() == "b"


async def test_a_program_answers(running: Running) -> None:
    speak = command_tool("pack:tricks/bin/speak.py", "echo", "{word}")
    assert (await running.value(speak, work(word="hello")))["rest"] == ["hello"]


async def test_no_other_user_of_the_machine_reaches_a_copy(running: Running, own_tmp: Path) -> None:
    """Copies are in a mount namespace of their own, and there for the run's user alone."""
    waiting = tool("plain:waits", access=Access.FILES, reads=("files",), writes=("files",))
    run = asyncio.create_task(running.value(waiting, work(marker=f"9999{secrets.randbelow(10**12)}")))
    await until(lambda: bool(namespaces()))
    (inside,) = (Path(f"/proc/{pid}/root{own_tmp}") for pid in namespaces())
    await until(lambda: bool(list(inside.glob("toolmesh-runners-*/volumes/*/files/a.txt"))))
    modes, modes_outside = modes_below(inside), modes_below(own_tmp)
    run.cancel()
    await asyncio.wait([run])
    assert modes == {0o700, 0o600}
    # The empty mount point.
    assert modes_outside == {0o700}


def modes_below(folder: Path) -> set[int]:
    """The modes of everything that holds copies."""
    roots = list(folder.glob("toolmesh-runners-*/volumes"))
    return {stat.S_IMODE(path.lstat().st_mode) for root in roots for path in (root, *root.rglob("*"))}


def namespaces() -> list[str]:
    """The processes that hold copies for this test."""
    return processes_with(f"{tempfile.gettempdir()}/toolmesh-runners-")


@pytest.mark.parametrize(
    "step", [{"do": "unlink", "path": "x", "files": 64}, {"do": "fill", "path": ".", "bytes": 64 * MIB}]
)
async def test_a_run_takes_no_more_of_the_machine_than_its_scratch_space(
    running: Running, step: dict[str, Any]
) -> None:
    """Files that are deleted while open count too."""
    writer = tool("hostile:writes", access=Access.FILES, reads=("files",), writes=("files",))
    error = await running.failure(writer, work(volume="files", steps=[step]))
    assert error.reason is Reason.RESOURCE_LIMIT_EXCEEDED
    # Deleted files are gone when the failed write is reported.
    assert error.metadata["limit"] in ({"scratch"} if step["do"] == "fill" else {"scratch", "file_size"})
