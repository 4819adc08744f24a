"""Reads the sandbox, scheduling and rendering profiles of a manifest. Pure."""

from __future__ import annotations

import re

from toolmesh.registry.v1 import tool_manifest_pb2 as mpb

from services.executor.domain.checkpoints.checkpoint import CheckpointConfig
from services.executor.domain.tool import Access, Confinement, Limit, Placement, Rendering, SiblingFailure

_TIERS = {
    mpb.SANDBOX_TIER_IN_PROCESS: "in_process",
    mpb.SANDBOX_TIER_PROCESS: "process",
    mpb.SANDBOX_TIER_KERNEL: "kernel",
    mpb.SANDBOX_TIER_MACHINE: "machine",
}
_ACCESS = {
    mpb.ACCESS_TIER_FILES: Access.FILES,
    mpb.ACCESS_TIER_NETWORK: Access.NETWORK,
    mpb.ACCESS_TIER_SUPERVISED: Access.SUPERVISED,
}
_SIBLINGS = {
    mpb.SIBLING_FAILURE_POLICY_CANCEL_SIBLINGS: SiblingFailure.CANCEL_SIBLINGS,
    mpb.SIBLING_FAILURE_POLICY_CANCEL_DEPENDENT: SiblingFailure.CANCEL_DEPENDENT,
}
_UNITS = {"Mi": 1 << 20, "Gi": 1 << 30}
_FILES = re.compile(r"filesystem:(read|write):([a-z][a-z0-9_-]*)")
# The default is the strongest tier that is generally available: a user-space kernel.
_DEFAULT_TIER = "kernel"
_DEFAULT_PORTS = (80, 443)
_DEFAULT_PRIORITY = 5
_DEFAULT_INTERVAL = 30.0


def confinement_of(manifest: mpb.ToolManifest) -> Confinement:
    """Return the resources and destinations that a run may use, limited to those that its access tier allows."""
    execution, limits = manifest.execution, manifest.execution.resource_limits
    access = _ACCESS.get(execution.access_tier, Access.PURE)
    network = execution.network_policy
    reaches = access in (Access.NETWORK, Access.SUPERVISED) and not network.deny_all_egress
    matches = [_FILES.fullmatch(permission) for permission in manifest.permission.required_permissions]
    named = [(match[1], match[2]) for match in matches if match is not None] if access is not Access.PURE else []
    # A read-only tool gets no writable volume.
    writes = manifest.mutation_class != mpb.MUTATION_CLASS_READ_ONLY
    return Confinement(
        tier=_TIERS.get(manifest.interface.safety.sandbox_tier, _DEFAULT_TIER),
        access=access,
        millicpus=_millicpus(limits.cpu),
        memory_bytes=_quantity(limits.memory, 512 << 20),
        scratch_bytes=_quantity(limits.ephemeral_storage, 1 << 30),
        processes=limits.max_processes,
        declared=_declared(limits) | ({Limit.VOLUMES} if named else frozenset()),
        hosts=tuple(name.lower() for name in network.allowed_domains) if reaches else (),
        ports=tuple(network.allowed_ports) or _DEFAULT_PORTS,
        reads=tuple(dict.fromkeys(volume for _, volume in named)),
        writes=tuple(dict.fromkeys(volume for verb, volume in named if verb == "write" and writes)),
        shares_workers=manifest.execution.shares_workers,
    )


def placement_of(manifest: mpb.ToolManifest) -> Placement:
    """Return the scheduling profile. By default no two calls may overlap."""
    return Placement(
        priority=manifest.priority or _DEFAULT_PRIORITY,
        concurrency_safe=manifest.interface.safety.concurrency_safe,
        max_concurrency=manifest.execution.max_concurrency,
        service=manifest.execution.external_service,
        sibling_failure=_SIBLINGS.get(manifest.scheduling.sibling_failure, SiblingFailure.IGNORE),
    )


def rendering_of(manifest: mpb.ToolManifest) -> Rendering:
    """Return the templates of the three representations."""
    hints = manifest.interface.rendering
    return Rendering(model=hints.model_facing, ui=hints.ui_facing, search=hints.transcript_search)


def checkpoint_of(manifest: mpb.ToolManifest) -> CheckpointConfig | None:
    """Return how runs save their state; None where they do not."""
    config = manifest.execution.checkpoint
    if not config.enabled:
        return None
    interval = config.micro_interval.seconds + config.micro_interval.nanos / 1e9
    return CheckpointConfig(interval or _DEFAULT_INTERVAL, frozenset(config.macro_events))


def _declared(limits: mpb.ResourceLimits) -> frozenset[Limit]:
    values = {Limit.MEMORY: limits.memory, Limit.PROCESSES: limits.max_processes, Limit.CPU_SHARE: limits.cpu}
    return frozenset(limit for limit, value in values.items() if value)


def _millicpus(text: str) -> int:
    if not text:
        return 1000
    return int(text[:-1]) if text.endswith("m") else int(text) * 1000


def _quantity(text: str, default: int) -> int:
    return int(text[:-2]) * _UNITS[text[-2:]] if text else default
