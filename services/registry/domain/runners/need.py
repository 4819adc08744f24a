"""What an executor must have to run a tool."""

from __future__ import annotations

from dataclasses import dataclass

from libs.common.entry_points import parse_command, parse_function
from services.registry.domain.publishing.manifest import Manifest

# Executors run a tool without a tier in a user-space kernel, and none that they confine inside their own process.
_DEFAULT_TIER, _LEAST_TIER = "kernel", "process"
CONFINED = frozenset({"python", "command"})


@dataclass(frozen=True, slots=True)
class RunnerNeed:
    """The runner, the sandbox tier and the tool pack of a tool; empty where it needs none."""

    kind: str
    tier: str = ""
    pack: str = ""


def need_of(manifest: Manifest) -> RunnerNeed:
    """Return what a manifest needs of an executor."""
    kind = str(manifest.execution.get("runner", ""))
    if kind not in CONFINED:
        return RunnerNeed(kind)
    tier = str(manifest.safety.get("sandbox_tier", _DEFAULT_TIER))
    return RunnerNeed(kind, _LEAST_TIER if tier == "in_process" else tier, _pack(manifest, kind))


def _pack(manifest: Manifest, kind: str) -> str:
    entry_point = str(manifest.execution.get("entry_point", ""))
    parsed = parse_function(entry_point) if kind == "python" else parse_command(entry_point)
    return parsed.pack if parsed else ""
