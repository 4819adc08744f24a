"""Which executor can run which tool, and what is named as missing."""

from __future__ import annotations

import pytest
from toolmesh.registry.v1 import tool_manifest_pb2 as pb

from services.registry.convert.manifest import manifest_of
from services.registry.domain.runners.announcement import Announcement, RunnerSet
from services.registry.domain.runners.need import RunnerNeed, need_of
from services.registry.tests.manifests import reader

PLAIN = Announcement("a", "1", frozenset({"builtin", "python", "command"}), frozenset({"process"}), frozenset({"kit"}))
STRONG = Announcement("b", "1", frozenset({"command"}), frozenset({"kernel"}), frozenset())


@pytest.mark.parametrize(
    ("need", "rule"),
    [
        (RunnerNeed("builtin"), ""),
        (RunnerNeed("python", "process", "kit"), ""),
        (RunnerNeed("command", "process"), ""),
        # A stronger sandbox stands in for a weaker one, a weaker one never for a stronger.
        (RunnerNeed("command", "kernel"), ""),
        (RunnerNeed("command", "machine"), "runner.sandbox"),
        # No single executor has both the pack and the sandbox.
        (RunnerNeed("python", "kernel", "kit"), "runner.sandbox"),
        (RunnerNeed("python", "process", "other"), "runner.pack"),
        (RunnerNeed("mcp"), "runner.none"),
    ],
)
def test_what_no_executor_has_is_named(need: RunnerNeed, rule: str) -> None:
    missing = RunnerSet((PLAIN, STRONG)).missing(need)
    assert (missing.rule if missing else "") == rule
    unannounced = RunnerSet().missing(need)
    assert unannounced is not None
    assert unannounced.rule == "runner.none"


@pytest.mark.parametrize(
    ("runner", "entry_point", "tier", "need"),
    [
        (pb.RUNNER_KIND_PYTHON, "kit/words:count", pb.SANDBOX_TIER_PROCESS, RunnerNeed("python", "process", "kit")),
        # Without a tier a tool runs in a user-space kernel.
        (pb.RUNNER_KIND_COMMAND, '["pack:kit/bin/x.py"]', 0, RunnerNeed("command", "kernel", "kit")),
        (pb.RUNNER_KIND_COMMAND, '["/usr/bin/wc"]', pb.SANDBOX_TIER_MACHINE, RunnerNeed("command", "machine")),
        (pb.RUNNER_KIND_BUILTIN, "echo", pb.SANDBOX_TIER_IN_PROCESS, RunnerNeed("builtin")),
        (pb.RUNNER_KIND_MCP, "https://mcp.example", pb.SANDBOX_TIER_KERNEL, RunnerNeed("mcp")),
    ],
)
def test_the_need_of_a_manifest(runner: int, entry_point: str, tier: int, need: RunnerNeed) -> None:
    message = reader()
    message.execution.runner, message.execution.entry_point = runner, entry_point  # type: ignore[assignment]
    message.interface.safety.sandbox_tier = tier  # type: ignore[assignment]
    assert need_of(manifest_of(message)) == need
