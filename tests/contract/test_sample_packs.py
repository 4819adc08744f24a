"""The packs that ship as examples: their manifests are admitted, and every tool does what its own examples show."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import protovalidate
import pytest
from toolmesh.registry.v1 import tool_version_pb2 as vpb

from libs.common.errors import MeshError
from libs.common.ids import new_id
from libs.common.telemetry.log import Log
from services.executor.adapters.registry.compile_tool import compile_version
from services.executor.adapters.runners.factory import RunnerConfig, SandboxedRunners
from services.executor.adapters.sandbox.bubblewrap.sandbox import BubblewrapSandbox
from services.executor.domain.run import RunRequest, RunResult
from services.executor.domain.tool import Tool
from services.executor.domain.volumes import Volume
from services.executor.tests.memory_channel import MemoryChannel, on
from services.executor.tests.waiting import until
from services.registry.adapters.json_schemas import JsonSchemaChecker
from services.registry.convert.manifest import manifest_of, message_of
from services.registry.domain.publishing.admission import violations
from services.registry.domain.publishing.manifest import Manifest

PACKS = Path(__file__).resolve().parents[2] / "examples" / "packs"
MANIFESTS = sorted(PACKS.glob("*/manifests/*.json"))


def manifest(path: Path) -> Manifest:
    return Manifest(json.loads(path.read_text()))


def tool_of(path: Path) -> Tool:
    read = manifest(path)
    name = f"tools/{read.name.qualified}/versions/{read.version}"
    tool = compile_version(vpb.ToolVersion(name=name, manifest=message_of(read), digest=read.digest)).tool
    assert tool is not None
    return tool


def named(name: str, pack: str = "textkit") -> Tool:
    return tool_of(PACKS / pack / "manifests" / f"{name}.json")


def asked(tool: Tool, arguments: dict[str, Any], *, preview: bool = False) -> RunRequest:
    filled = {default.argument: default.value for default in tool.defaults} | arguments
    assert not tool.input.violations(filled)
    return RunRequest(new_id(), filled, 20.0, tenant="acme", subject="did:key:ada", preview=preview)


@pytest.fixture
async def runners(tmp_path: Path) -> AsyncIterator[SandboxedRunners]:
    bubblewrap = BubblewrapSandbox()
    if why := await asyncio.to_thread(bubblewrap.unavailable_reason):
        pytest.skip(f"no bubblewrap here: {why}")
    (tmp_path / "reports").mkdir()
    config = RunnerConfig(packs=[PACKS], volumes={"reports": Volume(tmp_path / "reports", shared=True)})
    made = SandboxedRunners(
        {"process": bubblewrap}, config, Log("executor", descriptor=os.open(os.devnull, os.O_WRONLY))
    )
    await made.start()
    yield made
    await made.stop()


async def run(runners: SandboxedRunners, tool: Tool, work: RunRequest) -> RunResult:
    assert runners.by_kind[tool.runner].sandbox_for(tool) is not None
    ran = await runners.by_kind[tool.runner].run(tool, work)
    assert not tool.output.violations(ran.value)
    return ran


def test_there_are_some() -> None:
    assert len(MANIFESTS) == 9


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_a_manifest_is_admitted(path: Path) -> None:
    message = message_of(manifest(path))
    protovalidate.validate(message)
    assert violations(manifest_of(message), JsonSchemaChecker()) == []
    assert manifest_of(message) == manifest(path)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
async def test_a_tool_does_what_its_examples_show(runners: SandboxedRunners, path: Path) -> None:
    tool = tool_of(path)
    for example in manifest(path).examples:
        assert isinstance(example.arguments, dict)
        ran = await run(runners, tool, asked(tool, example.arguments))
        assert ran.value == example.result
        if ran.rollback is not None:
            await ran.rollback()


@pytest.mark.parametrize(
    ("name", "arguments", "state", "result"),
    [
        (
            "count_primes",
            {"below": 5_000_000, "step": 1000},
            {"counts": [168] * 4999},
            {"primes": 839_903, "steps": 5000},
        ),
        ("count_slowly", {"count": 10_000}, {"step": 9999}, {"counted": 10_000}),
    ],
)
async def test_a_long_tool_reports_stops_and_continues(
    runners: SandboxedRunners, name: str, arguments: dict[str, Any], state: dict[str, Any], result: dict[str, Any]
) -> None:
    tool, channel = named(name, "jobkit"), MemoryChannel()
    running = asyncio.create_task(run(runners, tool, on(channel, asked(tool, arguments))))
    await until(lambda: len(channel.saved) >= 2 and channel.reports)
    channel.cancel()
    with pytest.raises(MeshError) as canceled:
        await running
    assert canceled.value.metadata == {"cancellation": "cooperative"}
    assert [text for _, text in channel.lines if text.startswith("stopped")]
    # From a state shortly before the end the rest is one step.
    resumed = MemoryChannel(state)
    assert (await run(runners, tool, on(resumed, asked(tool, arguments)))).value == result
    assert len(resumed.saved) == len(resumed.reports) == 1


async def test_a_tool_asks_for_what_its_arguments_leave_open(runners: SandboxedRunners) -> None:
    tool, channel = named("plan_trip", "jobkit"), MemoryChannel()
    for answer in ("Vienna", 1):
        channel.answers.put_nowait(answer)
    planned = await run(runners, tool, on(channel, asked(tool, {})))
    assert planned.value == {"city": "Vienna", "plan": ["Day 1: the Prater"]}
    assert [question.message for question in channel.questions] == ["Which city?", "How many days in Vienna?"]


async def test_a_report_is_previewed_written_and_undone(runners: SandboxedRunners, tmp_path: Path) -> None:
    write, remove = named("write_report"), named("remove_report")
    arguments = {"name": "weekly", "title": "Weekly", "body": "All is well."}
    report = tmp_path / "reports" / "weekly.md"
    forecast = (await run(runners, write, asked(write, arguments, preview=True))).forecast
    assert forecast is not None
    assert [(change.resource, change.operation) for change in forecast.changes] == [
        ("file:reports/weekly.md", "create")
    ]
    assert not report.exists()
    wrote = await run(runners, write, asked(write, arguments))
    assert wrote.commit is not None
    await wrote.commit()
    assert report.read_text() == "# Weekly\n\nAll is well.\n"
    assert wrote.undo is not None
    removed = await run(runners, remove, asked(remove, wrote.undo))
    assert removed.commit is not None
    await removed.commit()
    assert not report.exists()
    # And back: what removing named is what writing needs.
    assert removed.undo == arguments
