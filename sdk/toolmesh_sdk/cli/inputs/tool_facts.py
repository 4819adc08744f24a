"""The facts of a tool version that policy reads, for questions that a person makes up."""

from __future__ import annotations

import time
from datetime import UTC
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolmesh.authz.v1.authz_service_pb2 import CallFacts
    from toolmesh.registry.v1.tool_version_pb2 import ToolVersion


def facts_of_version(version: ToolVersion) -> CallFacts:
    """Return the facts that every call of a version has now, as services of the mesh state them."""
    from toolmesh.authz.v1.authz_service_pb2 import CallFacts
    from toolmesh.registry.v1 import tool_manifest_pb2 as pb

    manifest, trust = version.manifest, version.trust
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
        result_labels=manifest.permission.result_labels,
        tool_trust=trust.score,
        tool_trust_age_hours=_age_hours(version),
        tool_stage=_stage(version),
        publisher_verified=trust.publisher_verified,
        tool_health=_health(version),
    )


def _age_hours(version: ToolVersion) -> int:
    if not version.trust.HasField("compute_time"):
        return 0
    computed = version.trust.compute_time.ToDatetime(tzinfo=UTC).timestamp()
    return max(int((time.time() - computed) // 3600), 0)


def _stage(version: ToolVersion) -> str:
    from toolmesh.registry.v1.trust_service_pb2 import ContributionStage

    name = ContributionStage.Name(version.trust.stage).removeprefix("CONTRIBUTION_STAGE_").lower()
    return "" if name == "unspecified" else name


def _health(version: ToolVersion) -> str:
    from toolmesh.registry.v1.tool_health_pb2 import ToolHealth

    name = ToolHealth.Name(version.health.health).removeprefix("TOOL_HEALTH_").lower()
    return "" if name == "unspecified" else name
