"""Runners over real sandboxes, for tests."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from libs.common.errors import MeshError
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.factory import RunnerConfig, SandboxedRunners
from services.executor.adapters.sandbox.bubblewrap.sandbox import BubblewrapSandbox
from services.executor.adapters.sandbox.egress.proxy import EgressProxy
from services.executor.domain.run import RunRequest, RunResult
from services.executor.domain.scheduling.heavy_work import HeavyWork
from services.executor.domain.tool import Tool

PACKS = Path(__file__).parent / "packs"


class Running:
    """The runners of one executor, and what they logged."""

    def __init__(self, runners: SandboxedRunners, log: Path) -> None:
        self._runners = runners
        self._log = log

    async def __call__(self, tool: Tool, work: RunRequest) -> RunResult:
        return await self._runners.by_kind[tool.runner].run(tool, work)

    async def value(self, tool: Tool, work: RunRequest) -> Any:
        """Run a tool and return its result alone."""
        return (await self(tool, work)).value

    async def failure(self, tool: Tool, work: RunRequest) -> MeshError:
        """Run a tool that must fail and return how it does."""
        try:
            ran = await self(tool, work)
        except MeshError as error:
            return error
        raise AssertionError(f"the run succeeded: {ran}")

    def sandbox_for(self, tool: Tool) -> str | None:
        return self._runners.by_kind[tool.runner].sandbox_for(tool)

    @property
    def heavy_work(self) -> HeavyWork:
        return self._runners.environment.heavy_work

    @property
    def pool(self) -> Any:
        return self._runners._pool

    @property
    def logged(self) -> str:
        """What was logged so far."""
        return self._log.read_text()


Starting = Callable[..., Awaitable[Running]]


@pytest.fixture
def own_tmp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which everything temporary of one test is made, and of no other.

    Other users can pass it, as they can /tmp.
    """
    with tempfile.TemporaryDirectory(prefix="runners-") as name:
        Path(name).chmod(0o711)
        monkeypatch.setattr(tempfile, "tempdir", name)
        yield Path(name)
        monkeypatch.undo()


@pytest.fixture
async def starting(tmp_path: Path, own_tmp: Path) -> AsyncIterator[Starting]:
    """Return a factory of runners over a real bubblewrap: `await starting(workers=PoolLimits(...))`."""
    started: list[SandboxedRunners] = []
    log = tmp_path / "log"
    descriptor = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    async def start(**config: Any) -> Running:
        bubblewrap = BubblewrapSandbox()
        if why := await asyncio.to_thread(bubblewrap.unavailable_reason):
            pytest.skip(f"no bubblewrap here: {why}")
        internal = [ip_network("127.0.0.0/8")]
        runners = SandboxedRunners(
            {"process": bubblewrap},
            RunnerConfig(**{"packs": [PACKS], **config}),
            Log("executor", descriptor=descriptor),
            lambda: EgressProxy(internal),
        )
        started.append(runners)
        await runners.start()
        return Running(runners, log)

    yield start
    for runners in started:
        await runners.stop()
    os.close(descriptor)


@pytest.fixture
async def running(starting: Starting) -> Running:
    """Runners with everything at its default."""
    return await starting()


def processes_with(marker: str) -> list[str]:
    """Every process of this machine whose command line holds the marker."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                line = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if marker.encode() in line:
                found.append(folder.name)
    return found
