"""The sandboxed runners: what they create, when, and what they remove."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

import msgspec

from libs.common.errors import Reason
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.factory import RunnerConfig, SandboxedRunners
from services.executor.tests.memory_channel import MemoryChannel, on
from services.executor.tests.packing import make_pack, python_tool, work
from services.executor.tests.running import Starting, own_tmp, starting
from services.executor.tests.waiting import until

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


ANSWER = "def f(arguments, call):\n    return {}\n"
ASK = """
def f(arguments, call):
    call.ask("Go on?", {"type": "boolean"})
    from kit import late
    return late.ANSWER
"""


async def test_without_polling_the_code_is_that_of_the_start(starting: Starting, tmp_path: Path) -> None:
    source = make_pack(tmp_path / "mine", "kit", {"m.py": ANSWER.format(1)})
    running = await starting(packs=[tmp_path / "mine"], pack_poll_seconds=0)
    tool = python_tool("kit/m:f")
    named = running.sandbox_for(tool)
    (source / "m.py").write_text(ANSWER.format(2))
    assert await running.value(tool, work()) == 1
    assert running.sandbox_for(tool) == named
    again = await starting(packs=[tmp_path / "mine"])
    assert await again.value(tool, work()) == 2
    assert again.sandbox_for(tool) != named


async def test_a_changed_pack_runs_without_a_restart(starting: Starting, tmp_path: Path) -> None:
    source = make_pack(tmp_path / "mine", "kit", {"m.py": ANSWER.format(1)})
    running = await starting(packs=[tmp_path / "mine"], pack_poll_seconds=0.02)
    tool, added = python_tool("kit/m:f"), python_tool("other/m:f")
    assert await running.value(tool, work()) == 1
    decided = running.sandbox_for(tool)
    assert decided is not None
    assert running.sandbox_for(added) is None
    make_pack(tmp_path / "mine", "other", {"m.py": ANSWER.format(7)})
    (source / "m.py").write_text(ANSWER.format(22))
    await until(lambda: running.sandbox_for(tool) != decided and running.sandbox_for(added) is not None)
    assert await running.value(tool, work()) == 22
    assert await running.value(added, work()) == 7
    # A call that was decided about before runs what its record names.
    assert await running.value(tool, msgspec.structs.replace(work(), code=decided)) == 1
    shutil.rmtree(tmp_path / "mine" / "other")
    await until(lambda: running.sandbox_for(added) is None)
    assert (await running.failure(added, work())).reason is Reason.TOOL_UNAVAILABLE


async def test_a_running_call_finishes_on_the_code_it_began_with(starting: Starting, tmp_path: Path) -> None:
    """It imports a module after the change, which is why its copy has to stay."""
    source = make_pack(tmp_path / "mine", "kit", {"m.py": ASK, "late.py": "ANSWER = 1\n"})
    running = await starting(packs=[tmp_path / "mine"], pack_poll_seconds=0.02)
    tool, channel = python_tool("kit/m:f"), MemoryChannel()
    # The label itself would keep the copy.
    before = str(running.sandbox_for(tool))
    call = asyncio.create_task(running.value(tool, on(channel, work())))
    await until(lambda: channel.questions)
    (source / "late.py").write_text("ANSWER = 22\n")
    await until(lambda: running.sandbox_for(tool) != before)
    channel.answers.put_nowait(True)
    assert await call == 1
    # Its worker ends although it may serve many calls, and its copy is deleted.
    await until(lambda: not len(running.pool))
    [folder] = folders()
    await until(lambda: len(list((folder / "packs").iterdir())) == 1)
    channel.answers.put_nowait(True)
    assert await running.value(tool, on(channel, work())) == 22
