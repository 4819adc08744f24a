"""Another executor for a running mesh, with tools that never end by themselves, in real sandboxes.

`python -m tests.harness.executors.lingering_executor` reads the same environment as `python -m services.executor`;
TOOLMESH_TOOL_PACKS must name `PACKS`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from google.protobuf.duration_pb2 import Duration
from toolmesh.registry.v1 import tool_manifest_pb2 as mpb

from libs.common.rpc.application import RpcApplication
from libs.common.runtime.clock import SystemClock
from libs.common.runtime.process import run
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.executor.builtin.tool import read_only_manifest
from services.executor.config import Settings
from services.executor.wiring import builtin_tools, compose

PACKS = Path(__file__).resolve().parent / "packs"
ENTRY_POINTS = {
    "linger_python": (mpb.RUNNER_KIND_PYTHON, "lingering/scatter:never_ends"),
    "linger_command": (mpb.RUNNER_KIND_COMMAND, json.dumps(["pack:lingering/bin/linger.py"])),
}


class Lingering:
    """A tool that only a sandbox runs."""

    def __init__(self, tool_id: str) -> None:
        runner, entry_point = ENTRY_POINTS[tool_id]
        self.manifest = read_only_manifest(
            tool_id=tool_id,
            version="1.0.0",
            title=tool_id.replace("_", " ").capitalize(),
            description=f"Never ends by itself and starts others that do not either ({tool_id}).",
            search_hint="never end, for a test",
            tags=["diagnostics"],
            input_schema={
                "type": "object",
                "properties": {
                    "marker": {"type": "string", "maxLength": 15, "description": "The name of the processes."}
                },
                "required": ["marker"],
                "additionalProperties": False,
            },
            output_schema={"type": "object", "additionalProperties": False},
            examples=[("Never", {"marker": "m"}, {})],
        )
        self.manifest.execution.runner, self.manifest.execution.entry_point = runner, entry_point
        self.manifest.execution.timeout_class = mpb.TIMEOUT_CLASS_STANDARD
        self.manifest.execution.timeout_default.CopyFrom(Duration(seconds=5))
        self.manifest.interface.safety.sandbox_tier = mpb.SANDBOX_TIER_PROCESS

    def call(self, arguments: dict[str, Any]) -> Any:
        raise AssertionError("it runs in a sandbox")


def last_seen(marker: str, until: float) -> float:
    """Watch the processes of this machine that bear a marker, as their name or as the name they were called by, until
    there is none or it is that
    late; return when one was last seen, on the monotonic clock, or 0 if none ever was."""
    seen = 0.0
    while (moment := next(_sightings(marker.encode()), None)) is not None:
        seen = moment
        if moment > until:
            break
    return seen


def bearing(marker: str) -> int:
    """How many processes of this machine bear a marker now."""
    return len(list(_sightings(marker.encode())))


def _sightings(sign: bytes) -> Iterator[float]:
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            moment = time.monotonic()
            # A process may be gone before it was looked at.
            with suppress(OSError):
                if sign in (process / "comm").read_bytes() or sign in (process / "cmdline").read_bytes():
                    yield moment


async def build(settings: Settings, log: Log, tracing: Tracing) -> RpcApplication:
    """Compose an executor with tools that never end."""
    clock = SystemClock()
    return compose(settings, log, tracing, clock=clock, tools=[*builtin_tools(clock), *map(Lingering, ENTRY_POINTS)])


if __name__ == "__main__":
    run("executor", Settings, build)
