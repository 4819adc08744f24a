"""Builds the tool attributes of a policy check. All services use it, so the same version gets the same decision
everywhere.
"""

from __future__ import annotations

from toolmesh.authz.v1.authz_service_pb2 import CallFacts
from toolmesh.registry.v1 import tool_manifest_pb2 as pb
from toolmesh.registry.v1.tool_version_pb2 import ToolVersion

# Built-in tools are trusted like the executor itself; other tools have no trust yet.
BUILTIN_TRUST = 100


def tool_attributes(version: ToolVersion) -> CallFacts:
    """Return the attributes that every call of a version has."""
    manifest = version.manifest
    return CallFacts(
        tool_version=version.name,
        tool_digest=version.digest,
        mutation_class=pb.MutationClass.Name(manifest.mutation_class).removeprefix("MUTATION_CLASS_").lower(),
        required_scopes=manifest.permission.required_scopes,
        required_permissions=manifest.permission.required_permissions,
        tags=manifest.tags,
        approval_always=manifest.permission.approval == pb.APPROVAL_REQUIREMENT_ALWAYS,
        impact_scope=manifest.permission.impact_scope,
        closed_world=manifest.interface.safety.closed_world,
        tool_trust=trust_in(manifest),
        result_labels=manifest.permission.result_labels,
    )


def trust_in(manifest: pb.ToolManifest) -> int:
    """Return the trust in a tool, 0 to 100."""
    return BUILTIN_TRUST if manifest.execution.runner == pb.RUNNER_KIND_BUILTIN else 0
