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

from libs.common.ids import new_id
from libs.common.telemetry.log import Log
from services.executor.adapters.registry.compile_tool import compile_version
from services.executor.adapters.runners.factory import RunnerConfig, SandboxedRunners
from services.executor.adapters.sandbox.bubblewrap.sandbox import BubblewrapSandbox
from services.executor.domain.model import RunRequest, RunResult
from services.executor.domain.tool import Tool
from services.executor.domain.volumes import Volume
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


def named(name: str) -> Tool:
    return tool_of(PACKS / "textkit" / "manifests" / f"{name}.json")


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
    assert len(MANIFESTS) == 4


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
