"""Translates a tool's manifest into a sandbox plan. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from services.executor.adapters.runners.packs.packs import Pack
from services.executor.adapters.sandbox.egress.proxy_bridge import PROXY_ENVIRONMENT
from services.executor.adapters.sandbox.port import Plan
from services.executor.adapters.sandbox.rootfs import interpreter_path
from services.executor.domain.tool import Tool

PACKS, LIBRARY, WORKER = "/packs", "/library", "/toolmesh"
# Isolated, without site packages and bytecode writes: the shortest possible cold start.
PYTHON = (interpreter_path(), "-I", "-S", "-B")
_BOOT = f"import sys; sys.path.append({WORKER!r}); from toolmesh_tool.worker import main; main()"
WORKER_ARGV = (*PYTHON, "-c", _BOOT)
_DEFAULT_PROCESSES = 32
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "TMPDIR": "/tmp", "LANG": "C.UTF-8", "TZ": "UTC"}  # noqa: S108

_BRIDGE_PROCESSES = 1

Binds = Sequence[tuple[str, str]]


def path_inside(pack: Pack, path: str = "") -> str:
    """Return the path of a pack, or of one of its files, inside the sandbox."""
    return f"{PACKS}/{pack.name}/{path}".rstrip("/")


def import_paths(pack: Pack) -> list[str]:
    """Return where the modules of a pack and of its packages are inside the sandbox."""
    lib = [path_inside(pack, pack.lib)] if pack.lib else []
    return [PACKS, *lib, *([LIBRARY] if pack.wheels else [])]


def cpu_limit_seconds(tool: Tool, seconds: float) -> float:
    """Return the CPU time limit of one run: the tool's CPU share for its whole time limit."""
    return max(1.0, math.ceil(seconds * tool.confinement.millicpus / 1000))


def plan_for(
    tool: Tool,
    argv: Sequence[str],
    *,
    readable: Binds = (),
    writable: Binds = (),
    cpu_seconds: float,
    egress_socket: str = "",
    mount_namespace: int = 0,
    has_events: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Plan:
    """Return the plan of a process that runs a tool within its manifest's limits."""
    confined = tool.confinement
    networked = bool(egress_socket)
    return Plan(
        argv=tuple(argv),
        environment={**_ENVIRONMENT, **(PROXY_ENVIRONMENT if networked else {}), **(environment or {})},
        readable=tuple(readable),
        writable=tuple(writable),
        memory_bytes=confined.memory_bytes,
        scratch_bytes=confined.scratch_bytes,
        file_bytes=confined.scratch_bytes,
        processes=(confined.processes or _DEFAULT_PROCESSES) + (_BRIDGE_PROCESSES if networked else 0),
        millicpus=confined.millicpus,
        cpu_seconds=cpu_seconds,
        egress_socket=egress_socket,
        loopback=networked,
        has_events=has_events,
        mount_namespace=mount_namespace,
    )
