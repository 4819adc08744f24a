"""A tool that reports progress, lines and parts, asks its caller, and stops when asked to, as its arguments say."""

from __future__ import annotations

import asyncio
from typing import Any

from google.protobuf.duration_pb2 import Duration
from toolmesh.registry.v1 import tool_manifest_pb2 as mpb

from libs.common.json.jsonio import dump, parse
from services.executor.builtin.tool import read_only_manifest
from services.executor.domain.errors import canceled
from services.executor.domain.run import RunRequest, RunResult
from services.executor.domain.run_channel import InputQuestion, ProgressReport

_NUMBER = {"type": "integer", "minimum": 0, "maximum": 600_000, "description": "A number."}
_TEXT = {"type": "string", "maxLength": 1000, "description": "Any text."}


def _manifest(tool_id: str, *, cooperative: bool) -> mpb.ToolManifest:
    manifest = read_only_manifest(
        tool_id=tool_id,
        version="1.0.0",
        title=tool_id.replace("_", " ").capitalize(),
        description=f"Reports so many steps, and what else a test wants ({tool_id}).",
        search_hint="report steps for a test",
        tags=["diagnostics"],
        input_schema={
            "type": "object",
            "properties": {
                **dict.fromkeys(("steps", "pause_ms", "part_bytes", "lines"), _NUMBER),
                **dict.fromkeys(("line", "question"), _TEXT),
            },
            "required": ["steps"],
            "additionalProperties": False,
        },
        output_schema={
            "type": "object",
            "properties": {"steps": _NUMBER, "answer": {"description": "What the caller answered."}},
            "required": ["steps"],
            "additionalProperties": False,
        },
        examples=[("No steps", {"steps": 0}, {"steps": 0})],
    )
    manifest.execution.timeout_class = mpb.TIMEOUT_CLASS_ASYNC
    manifest.execution.timeout_default.CopyFrom(Duration(seconds=3600))
    manifest.execution.cancellation_supported = cooperative
    return manifest


class ReportingTool:
    """The tool; only `run_reporting` can run it."""

    def __init__(self, tool_id: str, *, cooperative: bool) -> None:
        self.manifest = _manifest(tool_id, cooperative=cooperative)

    def call(self, arguments: dict[str, Any]) -> Any:
        raise AssertionError("a reporting tool is run by its runner")


def reporting_tools() -> list[Any]:
    """The tools: one that stops by itself when it is cancelled, and one that does not."""
    return [ReportingTool("report_steps", cooperative=True), ReportingTool("report_deaf", cooperative=False)]


async def run_reporting(work: RunRequest) -> RunResult:
    """Do what the arguments say."""
    work.begin()
    channel, wanted = work.channel, work.arguments
    assert channel is not None
    result: dict[str, Any] = {"steps": wanted["steps"]}
    if line := wanted.get("line"):
        channel.log("info", line)
        channel.partial_result(dump({"line": line}))
    for number in range(wanted.get("lines", 0)):
        channel.log("info", f"line {number}")
        if number % 100 == 99:
            await asyncio.sleep(0)
    if question := wanted.get("question"):
        schema = dump({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
        result["answer"] = parse(await channel.ask(InputQuestion(question, schema)))
    for step in range(1, wanted["steps"] + 1):
        channel.progress(ProgressReport(f"step {step}", current_step=step, total_steps=wanted["steps"]))
        if size := wanted.get("part_bytes"):
            channel.partial_result(dump("x" * size))
        await asyncio.wait([channel.canceled], timeout=wanted.get("pause_ms", 0) / 1000)
        if channel.canceled.done():
            raise canceled()
    return RunResult(result)
