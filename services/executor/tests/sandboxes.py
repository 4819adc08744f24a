"""Every sandbox there is, for tests that hold all of them to the same promise, and a way to let code try something in
one.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from libs.common.errors import MeshError
from services.executor.adapters.sandbox.bubblewrap.sandbox import Bubblewrap
from services.executor.adapters.sandbox.endings import error_of
from services.executor.adapters.sandbox.port import Confined, Ending, Plan, Sandbox
from services.executor.adapters.sandbox.rootfs import interpreter

MIB = 1 << 20
MOST_OUTPUT = 4 * MIB


def _gvisor() -> Sandbox:
    made: Sandbox = importlib.import_module("services.executor.adapters.sandbox.gvisor.sandbox").Gvisor()
    return made


MAKERS: dict[str, Callable[[], Sandbox]] = {
    "bubblewrap": lambda: Bubblewrap("test"),
    "bubblewrap without control groups": lambda: Bubblewrap("test", cgroups="off"),
    "gvisor": _gvisor,
}


_MISSING: dict[str, str] = {}


async def missing(kind: str) -> str:
    """Why a kind of sandbox cannot be used here; empty if it can. Found out once."""
    if kind not in _MISSING:
        try:
            made = MAKERS[kind]()
        except ModuleNotFoundError:
            return _MISSING.setdefault(kind, "not built")
        _MISSING[kind] = made.unavailable()
        await made.close()
    return _MISSING[kind]


@pytest.fixture(params=MAKERS)
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    """Each kind of sandbox that can be made on this machine."""
    if why := await missing(request.param):
        pytest.skip(f"{request.param}: {why}")
    made = MAKERS[request.param]()
    yield made
    await made.close()


class Tried(NamedTuple):
    """What came of trying something."""

    output: bytes
    ending: Ending

    @property
    def error(self) -> MeshError:
        """What its caller would get."""
        return error_of(self.ending, 1.0)


def python(code: str, *arguments: str, **limits: Any) -> Plan:
    """Plan to run some Python."""
    limits.setdefault("memory_bytes", 128 * MIB)
    return Plan((interpreter(), "-I", "-S", "-c", code, *arguments), **limits)


async def attempt(sandbox: Sandbox, plan: Plan) -> Tried:
    """Run a plan to its end and return what it wrote and how it ended."""
    process = await sandbox.start(plan)
    process.stdin.close()
    output = await read_all(process)
    return Tried(output, await process.ended())


async def read_all(process: Confined) -> bytes:
    """Read what a process writes until it closes its output; no more than a bounded amount."""
    output = b""
    while (part := await process.stdout.read(1 << 16)) and len(output) < MOST_OUTPUT:
        output += part
    return output


def processes_with(marker: str) -> list[int]:
    """The processes of this machine whose command line shows a marker."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if marker.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found
