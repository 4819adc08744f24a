"""What policy is told about a tool, whoever asks about it: of one version everybody tells the same, or two who ask would get two answers."""

from __future__ import annotations

from toolmesh.authz.v1.authz_service_pb2 import CallFacts
from toolmesh.registry.v1 import tool_manifest_pb2 as pb
from toolmesh.registry.v1.tool_version_pb2 import ToolVersion

# What comes with the executor is trusted like the executor; nobody vouches for anything else yet.
BUILTIN_TRUST = 100


def tool_attributes(version: ToolVersion) -> CallFacts:
    """Return what holds for every call of a version."""
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
    """Return how far a tool is trusted, 0 to 100."""
    return BUILTIN_TRUST if manifest.execution.runner == pb.RUNNER_KIND_BUILTIN else 0
