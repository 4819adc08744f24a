"""Which executor can run which tool, and what is named as missing."""

from __future__ import annotations

import pytest
from toolmesh.registry.v1 import tool_manifest_pb2 as pb

from services.registry.convert.manifest import manifest_of
from services.registry.domain.runners.announcement import Announcement, RunnerSet
from services.registry.domain.runners.need import RunnerNeed, need_of
from services.registry.tests.manifests import reader

PLAIN = Announcement("a", "1", frozenset({"builtin", "python", "command"}), frozenset({"process"}), frozenset({"kit"}))
CPU, MEMORY = frozenset({"cpu_share"}), frozenset({"memory"})
LOOSE = Announcement(
    "c",
    "1",
    frozenset({"command"}),
    frozenset({"process", "kernel"}),
    frozenset(),
    frozenset({("process", "cpu_share"), ("process", "memory"), ("kernel", "memory")}),
)
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
    ("need", "path"),
    [
        (RunnerNeed("command", "process"), ""),
        # The stronger sandbox keeps it, though the weaker one does not.
        (RunnerNeed("command", "process", limits=CPU), ""),
        (RunnerNeed("command", "kernel", limits=CPU), ""),
        (RunnerNeed("command", "process", limits=MEMORY), ".memory"),
        (RunnerNeed("command", "kernel", limits=MEMORY | CPU), ".memory"),
    ],
)
def test_a_limit_that_no_executor_keeps_is_named(need: RunnerNeed, path: str) -> None:
    missing = RunnerSet((LOOSE,)).missing(need)
    expected = ("runner.limit", f"manifest.execution.resource_limits{path}") if path else None
    assert (missing and (missing.rule, missing.path)) == expected
    # Another executor that keeps it is enough.
    assert RunnerSet((LOOSE, STRONG)).missing(need) is None


def test_a_tool_with_volumes_needs_a_sandbox_that_has_them() -> None:
    pods = Announcement(
        "c", "1", frozenset({"command"}), frozenset({"machine"}), frozenset(), frozenset({("machine", "volumes")})
    )
    assert RunnerSet((pods,)).missing(RunnerNeed("command", "machine")) is None
    missing = RunnerSet((pods,)).missing(RunnerNeed("command", "machine", limits=frozenset({"volumes"})))
    assert missing is not None
    assert (missing.rule, missing.path) == ("runner.limit", "manifest.permission.required_permissions")


def test_limits_that_no_single_executor_keeps_together_are_named_together() -> None:
    tiers, unkept = frozenset({"kernel"}), [frozenset({("kernel", "cpu_share")}), frozenset({("kernel", "memory")})]
    apart = [
        Announcement(str(n), "1", frozenset({"command"}), tiers, frozenset(), each) for n, each in enumerate(unkept)
    ]
    missing = RunnerSet(tuple(apart)).missing(RunnerNeed("command", "kernel", limits=CPU | MEMORY))
    assert missing is not None
    assert (missing.rule, missing.path) == ("runner.limit", "manifest.execution.resource_limits")


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


def test_a_need_holds_the_limits_that_the_manifest_sets() -> None:
    message = reader()
    message.execution.runner, message.execution.entry_point = pb.RUNNER_KIND_COMMAND, '["/usr/bin/wc"]'
    message.execution.resource_limits.CopyFrom(pb.ResourceLimits(cpu="500m", max_processes=3, ephemeral_storage="1Mi"))
    assert need_of(manifest_of(message)).limits == {"cpu_share", "processes"}
    message.permission.required_permissions.append("filesystem:read:reports")
    assert "volumes" not in need_of(manifest_of(message)).limits
    message.execution.access_tier = pb.ACCESS_TIER_FILES
    assert "volumes" in need_of(manifest_of(message)).limits
    # Executors confine no HTTP endpoint.
    message.execution.runner = pb.RUNNER_KIND_HTTP
    assert need_of(manifest_of(message)).limits == frozenset()
