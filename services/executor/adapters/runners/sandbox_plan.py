"""What a tool's manifest allows, as a sandbox is told. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from services.executor.adapters.runners.packs.packs import Pack
from services.executor.adapters.sandbox.port import Plan
from services.executor.adapters.sandbox.rootfs import interpreter_path
from services.executor.domain.tool import Tool

PACKS, WORKER = "/packs", "/toolmesh"
# No packages, no environment, no bytecode: a cold start that is as short and as bare as it can be.
PYTHON = (interpreter_path(), "-I", "-S", "-B")
_BOOT = f"import sys; sys.path.append({WORKER!r}); from toolmesh_tool.worker import main; main()"
WORKER_ARGV = (*PYTHON, "-c", _BOOT)
_PROCESSES = 32
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "TMPDIR": "/tmp", "LANG": "C.UTF-8", "TZ": "UTC"}  # noqa: S108

Binds = Sequence[tuple[str, str]]


def inside(pack: Pack, path: str = "") -> str:
    """Return where a pack, or a file of it, is inside the sandbox."""
    return f"{PACKS}/{pack.name}/{path}".rstrip("/")


def processor_seconds(tool: Tool, seconds: float) -> float:
    """Return how much processor time one run may use: its share for as long as it may take."""
    return max(1.0, math.ceil(seconds * tool.confinement.millicpus / 1000))


def plan_of(
    tool: Tool,
    argv: Sequence[str],
    *,
    readable: Binds = (),
    writable: Binds = (),
    cpu_seconds: float,
    egress_socket: str = "",
    environment: Mapping[str, str] | None = None,
) -> Plan:
    """Return the plan of a process that runs a tool within what its manifest allows."""
    confined = tool.confinement
    return Plan(
        argv=tuple(argv),
        environment={**_ENVIRONMENT, **(environment or {})},
        readable=tuple(readable),
        writable=tuple(writable),
        memory_bytes=confined.memory_bytes,
        scratch_bytes=confined.scratch_bytes,
        file_bytes=confined.scratch_bytes,
        processes=confined.processes or _PROCESSES,
        millicpus=confined.millicpus,
        cpu_seconds=cpu_seconds,
        egress_socket=egress_socket,
    )
