"""Builds the tool attributes of a policy check. All services use it, so the same version gets the same decision
everywhere.
"""

from __future__ import annotations

from datetime import UTC

from toolmesh.authz.v1.authz_service_pb2 import CallFacts
from toolmesh.registry.v1 import tool_manifest_pb2 as pb
from toolmesh.registry.v1.tool_health_pb2 import TOOL_HEALTH_UNSPECIFIED, ToolHealth, VersionHealth
from toolmesh.registry.v1.tool_trust_pb2 import ToolTrust
from toolmesh.registry.v1.tool_version_pb2 import ToolVersion
from toolmesh.registry.v1.trust_service_pb2 import CONTRIBUTION_STAGE_UNSPECIFIED, ContributionStage

_FIRST_STAGE = "submitted"


def tool_attributes(version: ToolVersion, now: float) -> CallFacts:
    """Return the attributes that every call of a version has at a time, in seconds since 1970."""
    manifest = version.manifest
    attributes = CallFacts(
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
    )
    set_trust_attributes(attributes, version.trust, now)
    attributes.tool_health = health_name(version.health)
    return attributes


def set_trust_attributes(attributes: CallFacts, trust: ToolTrust, now: float) -> None:
    """Set the attributes that change while a version does not: the trust in its tool at a time."""
    attributes.tool_trust = trust.score
    attributes.tool_trust_age_hours = trust_age_hours(computed_at(trust), now)
    attributes.tool_stage = stage_name(trust)
    attributes.publisher_verified = trust.publisher_verified


def computed_at(trust: ToolTrust) -> float | None:
    """Return when a score was computed, in seconds since 1970; None if none was."""
    return trust.compute_time.ToDatetime(tzinfo=UTC).timestamp() if trust.HasField("compute_time") else None


def trust_age_hours(computed: float | None, now: float) -> int:
    """Return the whole hours since a score was computed; 0 if none was, because the score is then 0 as well."""
    return 0 if computed is None else max(int((now - computed) // 3600), 0)


def stage_name(trust: ToolTrust) -> str:
    """Return the contribution stage as policies spell it. A tool of unknown stage is submitted."""
    if trust.stage == CONTRIBUTION_STAGE_UNSPECIFIED:
        return _FIRST_STAGE
    return ContributionStage.Name(trust.stage).removeprefix("CONTRIBUTION_STAGE_").lower()


def health_name(health: VersionHealth) -> str:
    """Return the health of a version as policies spell it; empty if it is not known."""
    if health.health == TOOL_HEALTH_UNSPECIFIED:
        return ""
    return ToolHealth.Name(health.health).removeprefix("TOOL_HEALTH_").lower()
