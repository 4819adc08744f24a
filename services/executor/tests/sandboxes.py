"""Fixtures that run one test in every sandbox of this machine, and helpers that run code in a sandbox."""

from __future__ import annotations

import importlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from libs.common.errors import MeshError
from services.executor.adapters.sandbox.bubblewrap.sandbox import BubblewrapSandbox
from services.executor.adapters.sandbox.exit_report import error_for_exit
from services.executor.adapters.sandbox.launcher.cgroup_hierarchy import CgroupPolicy
from services.executor.adapters.sandbox.port import ExitReport, Plan, Sandbox, SandboxedProcess
from services.executor.adapters.sandbox.rootfs import interpreter_path

MIB = 1 << 20
MAX_OUTPUT = 4 * MIB


def _gvisor() -> Sandbox:
    made: Sandbox = importlib.import_module("services.executor.adapters.sandbox.gvisor.sandbox").GvisorSandbox()
    return made


MAKERS: dict[str, Callable[[], Sandbox]] = {
    "bubblewrap": lambda: BubblewrapSandbox("test"),
    "bubblewrap without control groups": lambda: BubblewrapSandbox("test", cgroups=CgroupPolicy("off")),
    "gvisor": _gvisor,
}


_MISSING: dict[str, str] = {}


async def missing(kind: str) -> str:
    """Return why a sandbox cannot be used here; empty if it can. Probed once."""
    if kind not in _MISSING:
        try:
            made = MAKERS[kind]()
        except ModuleNotFoundError:
            return _MISSING.setdefault(kind, "not built")
        _MISSING[kind] = made.unavailable_reason()
        await made.close()
    return _MISSING[kind]


@pytest.fixture(params=MAKERS)
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    """Every sandbox that is available on this machine."""
    if why := await missing(request.param):
        pytest.skip(f"{request.param}: {why}")
    made = MAKERS[request.param]()
    yield made
    await made.close()


class Tried(NamedTuple):
    """The output and the exit report of a run."""

    output: bytes
    report: ExitReport

    @property
    def error(self) -> MeshError:
        """Return the error that the caller would get."""
        return error_for_exit(self.report, 1.0)


def python(code: str, *arguments: str, **limits: Any) -> Plan:
    """Return a plan that runs Python code."""
    limits.setdefault("memory_bytes", 128 * MIB)
    return Plan((interpreter_path(), "-I", "-S", "-c", code, *arguments), **limits)


async def attempt(sandbox: Sandbox, plan: Plan) -> Tried:
    """Run a plan to its end."""
    process = await sandbox.start(plan)
    process.stdin.close()
    output = await read_all(process)
    return Tried(output, await process.wait())


async def read_all(process: SandboxedProcess) -> bytes:
    """Read the output of a process until it closes, up to a limit."""
    output = b""
    while (part := await process.stdout.read(1 << 16)) and len(output) < MAX_OUTPUT:
        output += part
    return output


def processes_with(marker: str) -> list[int]:
    """Return the processes whose command line contains a marker."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if marker.encode() in (entry / "cmdline").read_bytes():
                    pids.append(int(entry.name))
    return pids
