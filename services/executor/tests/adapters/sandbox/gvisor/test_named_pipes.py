"""The pipes of events and input where `runsc` cannot pass descriptors. Newer versions open named pipes too."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from services.executor.adapters.sandbox.gvisor import environment
from services.executor.adapters.sandbox.gvisor.named_pipes import open_named_pipes, with_named_pipes
from services.executor.adapters.sandbox.gvisor.sandbox import GvisorSandbox
from services.executor.adapters.sandbox.port import ExitKind, Plan
from services.executor.adapters.sandbox.scratch.bounded_scratch import BoundedScratch
from services.executor.tests.sandboxes import MIB, missing, python

_PATIENCE = 30.0
ANSWER = """
import os
os.write(3, b'asked by ' + ' '.join(os.sys.argv[1:]).encode())
heard = os.read(4, 100)
print(heard.decode(), os.read(4, 100), sorted(map(int, os.listdir('/proc/self/fd')))[:5])
"""


@pytest.fixture
async def gvisor(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GvisorSandbox]:
    """gVisor whose `runsc` passes no descriptors."""
    if why := await missing("gvisor"):
        pytest.skip(why)
    monkeypatch.setattr(environment, "passes_descriptors", lambda _: False)
    made = GvisorSandbox("test")
    yield made
    await made.close()


@pytest.mark.parametrize("has_volume", [False, True])
async def test_a_process_gets_both_pipes_and_the_end_of_its_input(
    gvisor: GvisorSandbox, tmp_path: Path, has_volume: bool
) -> None:
    scratch = BoundedScratch(lambda: tmp_path)
    try:
        plan = python(ANSWER)
        plan = replace(plan, argv=(*plan.argv, "a b", "c"), has_events=True)
        if has_volume:
            volume = scratch.create(MIB, 100)
            writable = ((str(volume.source), "/volumes/own"),)
            plan = replace(plan, writable=writable, mount_namespace=volume.namespace)
        process = await gvisor.start(plan)
        pipes = process.event_pipes
        assert pipes is not None
        assert await asyncio.wait_for(pipes.events.readexactly(14), _PATIENCE) == b"asked by a b c"
        pipes.input.write(b"answered")
        await asyncio.wait_for(pipes.input.drain(), _PATIENCE)
        pipes.input.close()
        assert await asyncio.wait_for(process.stdout.read(), _PATIENCE) == b"answered b'' [0, 1, 2, 3, 4]\n"
        report = await process.wait()
        assert (report.kind, report.code) == (ExitKind.EXITED, 0)
        assert await pipes.events.read() == b""
    finally:
        scratch.close()


def test_only_the_events_may_be_written_inside(tmp_path: Path) -> None:
    plan = with_named_pipes(Plan(("/bin/tool",), readable=(("/a", "/b"),)), tmp_path)
    assert plan.argv[-1] == "/bin/tool"
    assert [inside for _, inside in plan.writable] == ["/run/toolmesh/events"]
    assert [inside for _, inside in plan.readable] == ["/b", "/run/toolmesh/input"]


def test_both_ends_are_open_before_the_process_starts(tmp_path: Path) -> None:
    with_named_pipes(Plan(("/bin/tool",)), tmp_path)
    for read, write in open_named_pipes(tmp_path):
        os.write(write, b"line")
        assert os.read(read, 100) == b"line"
        os.close(write)
        assert os.read(read, 100) == b""
        os.close(read)


def test_nothing_stays_open_where_one_is_missing(tmp_path: Path) -> None:
    with_named_pipes(Plan(("/bin/tool",)), tmp_path)
    (tmp_path / "input").unlink()
    before = _open_descriptors()
    with pytest.raises(FileNotFoundError):
        open_named_pipes(tmp_path)
    assert _open_descriptors() == before


def _open_descriptors() -> list[str]:
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())
