"""Tries every tool of a pack: its examples, and calls that are made from its input schema."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import HypothesisException

from authoring.packs.check_pack import CheckedPack
from authoring.packs.trials.argument_strategy import arguments_of
from authoring.packs.trials.pack_sandboxes import PackSandboxes
from authoring.packs.trials.trial import Trial, shown
from libs.common.errors import MeshError
from libs.common.json.jsonio import dump, parse
from services.executor.domain.tool import Tool


@dataclass(slots=True)
class TriedTool:
    """What was tried of one tool."""

    tool_id: str
    examples: int = 0
    cases: int = 0
    """Calls that were made from the schema."""
    refused: int = 0
    """Calls of them that the tool itself refused."""
    skipped: str = ""
    """Why something was not tried."""
    problems: list[str] = field(default_factory=list)


def try_pack(
    folder: Path,
    checked: CheckedPack,
    *,
    cases: int,
    tools: Sequence[str] = (),
    network: bool = False,
    secrets: Mapping[str, str] | None = None,
) -> list[TriedTool]:
    """Try the tools of a pack without problems. Tools with hosts run only with `network`: their calls are real.

    `secrets` are values for their secrets, by name. All others are made up.
    """
    manifests = {name: each for name, each in checked.manifests.items() if not tools or name in tools}
    with asyncio.Runner() as runner:
        sandboxes = PackSandboxes(folder, manifests, secrets)
        runner.run(sandboxes.__aenter__())
        try:
            return [
                _try_tool(runner, sandboxes, tool_id, manifest, cases=cases, network=network)
                for tool_id, manifest in manifests.items()
            ]
        finally:
            runner.run(sandboxes.__aexit__())


def _try_tool(
    runner: asyncio.Runner,
    sandboxes: PackSandboxes,
    tool_id: str,
    manifest: Mapping[str, Any],
    *,
    cases: int,
    network: bool,
) -> TriedTool:
    tool, tried = sandboxes.tools[tool_id], TriedTool(tool_id)
    if why := sandboxes.missing_for(tool):
        tried.skipped = why
    elif tool.confinement.hosts and not network:
        tried.skipped = "it reaches hosts; --network calls it for real"
    else:
        for example in manifest["input"].get("examples", ()):
            _try_example(runner, sandboxes, tool, example, tried)
        if cases and not tried.problems:
            _try_cases(runner, sandboxes, tool, manifest["input"]["schema"], tried, cases)
    return tried


def _try_example(
    runner: asyncio.Runner, sandboxes: PackSandboxes, tool: Tool, example: Mapping[str, Any], tried: TriedTool
) -> None:
    trial = runner.run(sandboxes.run(tool, example["arguments"]))
    tried.examples += 1
    if trial.error is not None and trial.refused:
        tried.problems.append(f"refused its example: {trial.error.message}; called with {shown(trial.arguments)}")
    elif defect := trial.defect(tool):
        tried.problems.append(defect)
    elif "result" in example and trial.value != example["result"]:
        said = f"for the example {shown(trial.arguments)}, which says {shown(example['result'])}"
        tried.problems.append(f"returned {shown(trial.value)} {said}")


def _try_cases(
    runner: asyncio.Runner,
    sandboxes: PackSandboxes,
    tool: Tool,
    schema: Mapping[str, Any],
    tried: TriedTool,
    cases: int,
) -> None:
    """Call the tool with generated arguments. What fails is made as small as possible before it is reported."""
    defects: list[str] = []
    hung: list[Trial] = []

    @seed(0)
    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(arguments_of(schema))
    def attempt(arguments: Any) -> None:
        # The mesh's own reading decides: of the schema, and of what is JSON.
        if not _travels(arguments) or tool.input.violations(arguments):
            return
        if hung:
            # Smaller arguments may hang as well, and each of them would take the tool's whole time.
            if arguments == hung[0].arguments:
                raise _DefectError
            return
        trial = runner.run(sandboxes.run(tool, arguments))
        tried.cases += 1
        tried.refused += trial.refused
        if defect := trial.defect(tool):
            defects.append(defect)
            hung.extend([trial] if trial.hung else [])
            raise _DefectError

    try:
        attempt()
    except _DefectError:
        tried.problems.append(defects[-1])
    except HypothesisException as error:
        if defects:
            tried.problems.append(f"not every time: {defects[0]}")
        else:
            tried.skipped = f"its schema makes no arguments: {error}"


def _travels(arguments: Any) -> bool:
    """Return whether the mesh passes the arguments on, such as integers of 64 bits."""
    try:
        return isinstance(parse(dump(arguments)), dict)
    except MeshError:
        return False


class _DefectError(Exception):
    """The last call found a defect."""
