"""A tool of many steps, each with an effect that can be counted, that saves where it is after each.

The system that has the effects knows them by a key for each step, so that a step that is repeated has its effect once.
Every try is counted too.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from google.protobuf.duration_pb2 import Duration
from toolmesh.registry.v1 import tool_manifest_pb2 as mpb

from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import dump, parse
from services.executor.builtin.tool import read_only_manifest
from services.executor.domain.run import RunRequest, RunResult
from services.executor.domain.run_channel import CheckpointState

_NUMBER = {"type": "integer", "minimum": 0, "maximum": 600_000, "description": "A number."}
_EVENT = "step_complete"


class SteppingTool:
    """The tool; only `run_steps` can run it."""

    def __init__(self, tool_id: str, rule: mpb.UncertainOutcomeRule) -> None:
        manifest = self.manifest = read_only_manifest(
            tool_id=tool_id,
            version="1.0.0",
            title=tool_id.replace("_", " ").capitalize(),
            description=f"Takes so many steps, each with an effect that a test counts ({tool_id}).",
            search_hint="take steps for a test",
            tags=["diagnostics"],
            input_schema={
                "type": "object",
                "properties": {"steps": _NUMBER, "pause_ms": _NUMBER, "fail_at": _NUMBER, "label_at": _NUMBER},
                "required": ["steps"],
                "additionalProperties": False,
            },
            output_schema={
                "type": "object",
                "properties": {"steps": _NUMBER},
                "required": ["steps"],
                "additionalProperties": False,
            },
            examples=[("No steps", {"steps": 0}, {"steps": 0})],
        )
        manifest.mutation_class = mpb.MUTATION_CLASS_WRITE_REVERSIBLE
        manifest.compensation_tool = f"tools/core.{tool_id}"
        effect = mpb.SideEffect(resource="step/{number}", operation=mpb.SIDE_EFFECT_OPERATION_CREATE)
        manifest.side_effects.append(effect)
        manifest.interface.safety.read_only = False
        manifest.execution.timeout_class = mpb.TIMEOUT_CLASS_ASYNC
        manifest.execution.timeout_default.CopyFrom(Duration(seconds=3600))
        manifest.execution.checkpoint.enabled = True
        manifest.execution.checkpoint.macro_events.append(_EVENT)
        manifest.idempotency.mode = mpb.IDEMPOTENCY_MODE_NATURAL
        manifest.idempotency.uncertain_outcome = rule  # type: ignore[assignment]

    def call(self, arguments: dict[str, Any]) -> Any:
        raise AssertionError("a stepping tool is run by its runner")


def stepping_tools() -> list[Any]:
    """The tools: one that may be repeated from the beginning, and one that may not."""
    return [
        SteppingTool("step_again", mpb.UNCERTAIN_OUTCOME_RULE_REPEAT),  # type: ignore[arg-type]
        SteppingTool("step_once", mpb.UNCERTAIN_OUTCOME_RULE_FAIL),  # type: ignore[arg-type]
    ]


async def run_steps(work: RunRequest, folder: Path) -> RunResult:
    """Take the steps behind the checkpoint, each with its effect and a checkpoint after it."""
    work.begin()
    channel, wanted = work.channel, work.arguments
    assert channel is not None
    state: Any = {"next": 1, "done": []} if channel.resume_state is None else parse(channel.resume_state)
    while state["next"] <= wanted["steps"]:
        step = state["next"]
        await asyncio.sleep(wanted.get("pause_ms", 0) / 1000)
        if step == wanted.get("fail_at") and _first_time(folder / f"failed-{work.idempotency_key.replace('/', '_')}"):
            raise MeshError(Reason.TOOL_CRASHED)
        _take(folder, work.idempotency_key, step)
        state["done"].append({"step": step, "receipt": f"receipt of step {step:05} of order {step * 7919 % 1000:04}"})
        state["next"] = step + 1
        label = "half-way" if step == wanted.get("label_at") else ""
        await channel.save(CheckpointState(dump(state), event=_EVENT, label=label))
    return RunResult({"steps": wanted["steps"]})


def tries(folder: Path) -> Counter[tuple[str, int]]:
    """How often each step of each key was tried."""
    ledger = folder / "steps"
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    return Counter((key, int(step)) for key, step in map(str.split, lines))


def effects(folder: Path, key: str) -> list[int]:
    """The steps of a key whose effect happened, one entry for each effect."""
    prefix = f"effect-{key.replace('/', '_')}-"
    return sorted(int(path.name.removeprefix(prefix)) for path in folder.glob(f"{prefix}*"))


def _take(folder: Path, key: str, step: int) -> None:
    with (folder / "steps").open("a") as ledger:
        ledger.write(f"{key} {step}\n")
    # The other system: a second order with the same key has no second effect.
    with suppress(FileExistsError):
        (folder / f"effect-{key.replace('/', '_')}-{step}").touch(exist_ok=False)


def _first_time(flag: Path) -> bool:
    try:
        flag.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
