"""What an executor must have to run a tool."""

from __future__ import annotations

from dataclasses import dataclass

from libs.common.entry_points import parse_command, parse_function
from services.registry.domain.publishing.manifest import Manifest

# Executors run a tool without a tier in a user-space kernel, and none that they confine inside their own process.
_DEFAULT_TIER, _LEAST_TIER = "kernel", "process"
CONFINED = frozenset({"python", "command"})


# The field of each limit that a sandbox may be unable to keep, by the name of the limit in announcements.
_RESOURCES = "manifest.execution.resource_limits"
LIMIT_FIELDS = {
    "memory": f"{_RESOURCES}.memory",
    "processes": f"{_RESOURCES}.max_processes",
    "cpu_share": f"{_RESOURCES}.cpu",
    "volumes": "manifest.permission.required_permissions",
}
_VOLUMES = "filesystem:"


@dataclass(frozen=True, slots=True)
class RunnerNeed:
    """The runner, the sandbox tier, the tool pack and the kept limits of a tool; empty where it needs none."""

    kind: str
    tier: str = ""
    pack: str = ""
    limits: frozenset[str] = frozenset()


def need_of(manifest: Manifest) -> RunnerNeed:
    """Return what a manifest needs of an executor."""
    kind = str(manifest.execution.get("runner", ""))
    if kind not in CONFINED:
        return RunnerNeed(kind)
    tier = str(manifest.safety.get("sandbox_tier", _DEFAULT_TIER))
    return RunnerNeed(kind, _LEAST_TIER if tier == "in_process" else tier, _pack(manifest, kind), _limits(manifest))


def _limits(manifest: Manifest) -> frozenset[str]:
    declared = manifest.execution.get("resource_limits") or {}
    limits = {limit for limit, field in LIMIT_FIELDS.items() if declared.get(field.removeprefix(f"{_RESOURCES}."))}
    permissions = manifest.part("permission").get("required_permissions") or ()
    # Without an access tier a tool gets none of its volumes.
    reads = manifest.execution.get("access_tier", "pure") != "pure"
    if reads and any(str(permission).startswith(_VOLUMES) for permission in permissions):
        limits.add("volumes")
    return frozenset(limits)


def _pack(manifest: Manifest, kind: str) -> str:
    entry_point = str(manifest.execution.get("entry_point", ""))
    parsed = parse_function(entry_point) if kind == "python" else parse_command(entry_point)
    return parsed.pack if parsed else ""
