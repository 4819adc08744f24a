"""The sandboxed runners: what they create, when, and what they remove."""

from __future__ import annotations

import tempfile
from pathlib import Path

from libs.common.telemetry.log import Log
from services.executor.adapters.runners.factory import RunnerConfig, SandboxedRunners
from services.executor.tests.packing import make_pack, python_tool, work
from services.executor.tests.running import Starting, own_tmp, starting

__all__ = ["own_tmp", "starting"]

WHO = python_tool("tricks/plain:who")


def folders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("toolmesh-runners-*"))


async def test_nothing_is_created_without_packs(quiet: Log, own_tmp: Path) -> None:
    before = folders()
    runners = SandboxedRunners({}, RunnerConfig(), quiet)
    await runners.start()
    assert runners.by_kind["python"].sandbox_for(WHO) is None
    assert folders() == before
    await runners.stop()


async def test_stop_removes_everything(starting: Starting) -> None:
    before = folders()
    running = await starting()
    await running.value(WHO, work())
    made = folders() - before
    assert len(made) == 1
    await running._runners.stop()
    assert folders() & made == set()


async def test_the_code_is_that_of_the_start(starting: Starting, tmp_path: Path) -> None:
    answer = "def f(arguments, call):\n    return {}\n"
    source = make_pack(tmp_path / "mine", "kit", {"m.py": answer.format(1)})
    running = await starting(packs=[tmp_path / "mine"])
    tool = python_tool("kit/m:f")
    named = running.sandbox_for(tool)
    (source / "m.py").write_text(answer.format(2))
    assert await running.value(tool, work()) == 1
    assert running.sandbox_for(tool) == named
    again = await starting(packs=[tmp_path / "mine"])
    assert await again.value(tool, work()) == 2
    assert again.sandbox_for(tool) != named
