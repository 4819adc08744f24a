"""Another executor for a running mesh, with a tool that sleeps until it is woken: what it takes to stop things while
a call runs.

`python -m tests.harness.executors.napping_executor` reads the same environment as `python -m services.executor`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from google.protobuf.duration_pb2 import Duration
from toolmesh.registry.v1 import tool_manifest_pb2 as mpb

from libs.common.rpc.application import RpcApplication
from libs.common.runtime.clock import SystemClock
from libs.common.runtime.process import run
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.executor.adapters.runners.builtin import BuiltinRunner
from services.executor.builtin.tool import read_only_manifest
from services.executor.config import Settings
from services.executor.domain.run import RunRequest, RunResult
from services.executor.domain.tool import Tool
from services.executor.wiring import builtin_tools, compose

_TEXT = {"type": "string", "maxLength": 1000, "description": "The path of a file."}


def _manifest() -> mpb.ToolManifest:
    manifest = read_only_manifest(
        tool_id="nap",
        version="1.0.0",
        title="Nap",
        description="Says that it began by making one file, and sleeps until another one is there.",
        search_hint="sleep until somebody makes a file",
        tags=["diagnostics"],
        input_schema={
            "type": "object",
            "properties": {"began": _TEXT, "wake": _TEXT},
            "required": ["began", "wake"],
            "additionalProperties": False,
        },
        output_schema={
            "type": "object",
            "properties": {"slept": {"type": "boolean", "description": "Always true."}},
            "required": ["slept"],
            "additionalProperties": False,
        },
        examples=[("A nap", {"began": "/tmp/began", "wake": "/tmp/wake"}, {"slept": True})],
    )
    manifest.execution.timeout_class = mpb.TIMEOUT_CLASS_LONG_RUNNING
    manifest.execution.timeout_default.CopyFrom(Duration(seconds=60))
    return manifest


class Nap:
    """Sleeps; only the runner below can run it."""

    manifest = _manifest()

    def call(self, arguments: dict[str, Any]) -> Any:
        raise AssertionError("a nap is run by its runner")


class NappingRunner(BuiltinRunner):
    """Runs what ships with the executor, and naps."""

    async def run(self, tool: Tool, work: RunRequest) -> RunResult:
        if tool.entry_point != "nap":
            return await super().run(tool, work)
        work.begin()
        arguments = work.arguments
        Path(arguments["began"]).touch()  # noqa: ASYNC240
        while not Path(arguments["wake"]).exists():  # noqa: ASYNC110, ASYNC240  (there is no event for a new file)
            await asyncio.sleep(0.01)
        return RunResult({"slept": True})


async def build(settings: Settings, log: Log, tracing: Tracing) -> RpcApplication:
    """Compose an executor that can nap."""
    clock = SystemClock()
    return compose(
        settings, log, tracing, clock=clock, tools=[*builtin_tools(clock), Nap()], builtin_runner=NappingRunner
    )


if __name__ == "__main__":
    run("executor", Settings, build)
