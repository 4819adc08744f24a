"""Admission rules for side effects, idempotency, previews and compensation."""

from __future__ import annotations

from collections.abc import Iterator

from libs.common.errors import MeshError, Violation
from libs.common.tool_names import ToolName
from services.registry.domain.publishing.manifest import Manifest, MutationClass


def check_side_effects(manifest: Manifest) -> Iterator[Violation]:
    """Require side effects of writing tools and forbid them for read-only tools."""
    declared = bool(manifest.items("side_effects"))
    if manifest.mutates and not declared:
        yield Violation("manifest.side_effects", "side_effects.required", "is required for a tool that writes")
    if not manifest.mutates and declared:
        yield Violation("manifest.side_effects", "side_effects.forbidden", "a read-only tool changes nothing")


def check_safety_claims(manifest: Manifest) -> Iterator[Violation]:
    """Refuse safety claims that contradict the mutation class. Unset fields claim nothing."""
    safety = manifest.safety
    if manifest.mutates and safety.get("read_only"):
        yield Violation(
            "manifest.interface.safety.read_only", "safety.contradiction", "the mutation class says it writes"
        )
    deletes = any(effect.get("operation") == "delete" for effect in manifest.items("side_effects"))
    if deletes and safety.get("non_destructive"):
        yield Violation(
            "manifest.interface.safety.non_destructive", "safety.contradiction", "a side effect deletes something"
        )
    if manifest.mutates and "cache_ttl" in manifest.execution:
        yield Violation("manifest.execution.cache_ttl", "cache.read_only", "only a read-only tool's results are reused")
    if "stale_ttl" in manifest.execution and (manifest.mutates or "cache_ttl" not in manifest.execution):
        message = "is for a read-only tool with a cache_ttl"
        yield Violation("manifest.execution.stale_ttl", "cache.stale", message)


def require_idempotency(manifest: Manifest) -> Iterator[Violation]:
    """Require writing tools to declare how repeated calls are handled."""
    idempotency = manifest.part("idempotency")
    if manifest.mutates and "mode" not in idempotency:
        yield Violation("manifest.idempotency", "idempotency.required", "is required for a tool that writes")
    if idempotency.get("uncertain_outcome") == "query_status" and not _is_tool(idempotency.get("status_tool", "")):
        yield Violation("manifest.idempotency.status_tool", "idempotency.status_tool", "must name the status tool")


def require_dry_run(manifest: Manifest) -> Iterator[Violation]:
    """Require dry-run support of irreversible tools, so that a call can be previewed, or approval of every call."""
    if _needs_approval_always(manifest, MutationClass.WRITE_IRREVERSIBLE, manifest.document.get("dry_run_supported")):
        message = "is required for an irreversible tool, unless permission.approval is always"
        yield Violation("manifest.dry_run_supported", "dry_run.required", message)


def require_compensation(manifest: Manifest) -> Iterator[Violation]:
    """Require reversible tools to name their compensation tool, or approval of every call."""
    tool = manifest.text("compensation_tool")
    if _needs_approval_always(manifest, MutationClass.WRITE_REVERSIBLE, tool):
        message = "is required for a reversible tool, unless permission.approval is always"
        yield Violation("manifest.compensation_tool", "compensation.required", message)
    if tool and not _is_tool(tool):
        yield Violation("manifest.compensation_tool", "compensation.name", "is not the name of a tool")


def check_checkpoints(manifest: Manifest) -> Iterator[Violation]:
    """Refuse checkpoints of a tool with a writable volume: a later run would lack what the killed one wrote there."""
    permissions = manifest.part("permission").get("required_permissions", ())
    writes = any(str(permission).startswith("filesystem:write:") for permission in permissions)
    if manifest.execution.get("checkpoint", {}).get("enabled") and writes:
        message = "is not possible with a writable volume, whose changes are discarded when a run is interrupted"
        yield Violation("manifest.execution.checkpoint.enabled", "checkpoint.volumes", message)


def _needs_approval_always(manifest: Manifest, mutation: MutationClass, way_back: object) -> bool:
    """Return whether a tool of this class has no way back, and its author does not demand that a person approves."""
    approval = manifest.part("permission").get("approval", "")
    return manifest.mutation_class is mutation and not way_back and approval != "always"


def _is_tool(reference: str) -> bool:
    try:
        ToolName.parse(reference)
    except MeshError:
        return False
    return True
