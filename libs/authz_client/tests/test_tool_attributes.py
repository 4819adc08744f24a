"""Every attribute that the registry admits fits into an authz request."""

from __future__ import annotations

import pytest
from toolmesh.registry.v1 import tool_health_pb2 as health_pb
from toolmesh.registry.v1 import tool_manifest_pb2 as pb
from toolmesh.registry.v1.tool_trust_pb2 import ToolTrust
from toolmesh.registry.v1.tool_version_pb2 import ToolVersion
from toolmesh.registry.v1.trust_service_pb2 import CONTRIBUTION_STAGE_GA

from libs.authz_client.tool_attributes import tool_attributes
from libs.common.errors import MeshError, Reason
from libs.common.rpc.validation.validate import validate


def test_whatever_a_manifest_may_say_of_permissions_can_be_told() -> None:
    permission = pb.PermissionProfile(
        required_permissions=[f"a:{place:0510}" for place in range(64)],
        required_scopes=[f"s{place:0127}" for place in range(32)],
        result_labels=[f"l{place:063}" for place in range(16)],
        impact_scope=10,
    )
    validate(permission)
    name = "tools/" + "n" * 63 + "." + "t" * 255 + "/versions/1.0.0-" + "a" * 122
    manifest = pb.ToolManifest(
        permission=permission, mutation_class=pb.MUTATION_CLASS_READ_ONLY, tags=[f"{place:064}" for place in range(32)]
    )
    validate(tool_attributes(ToolVersion(name=name, digest="sha256:" + "0" * 64, manifest=manifest), now=0.0))


def test_the_trust_of_the_registry_is_what_policy_sees() -> None:
    trust = ToolTrust(score=83, stage=CONTRIBUTION_STAGE_GA, publisher_verified=True)
    trust.compute_time.FromSeconds(1_000_000)
    facts = tool_attributes(_version(trust), now=1_000_000 + 3 * 3600 + 1)
    assert (facts.tool_trust, facts.tool_trust_age_hours) == (83, 3)
    assert (facts.tool_stage, facts.publisher_verified) == ("ga", True)


def test_a_tool_without_a_score_is_submitted_and_not_trusted() -> None:
    facts = tool_attributes(_version(None), now=1e9)
    assert (facts.tool_trust, facts.tool_trust_age_hours) == (0, 0)
    assert (facts.tool_stage, facts.publisher_verified) == ("submitted", False)
    validate(facts)


@pytest.mark.parametrize(
    ("health", "seen"),
    [
        (health_pb.TOOL_HEALTH_UNSPECIFIED, ""),
        (health_pb.TOOL_HEALTH_HEALTHY, "healthy"),
        (health_pb.TOOL_HEALTH_DEGRADED, "degraded"),
        (health_pb.TOOL_HEALTH_UNAVAILABLE, "unavailable"),
    ],
)
def test_the_health_of_the_registry_is_what_policy_sees(health: health_pb.ToolHealth.ValueType, seen: str) -> None:
    version = _version(None)
    version.health.health = health
    facts = tool_attributes(version, now=1e9)
    assert facts.tool_health == seen
    validate(facts)


def _version(trust: ToolTrust | None) -> ToolVersion:
    manifest = pb.ToolManifest(mutation_class=pb.MUTATION_CLASS_READ_ONLY)
    return ToolVersion(name="tools/a.b/versions/1.0.0", digest="sha256:" + "0" * 64, manifest=manifest, trust=trust)


@pytest.mark.parametrize("label", ["l" * 65, "", "Confidential", "a b", "a\0b"])
def test_a_label_that_could_not_be_told_or_kept_is_not_admitted(label: str) -> None:
    with pytest.raises(MeshError) as caught:
        validate(pb.PermissionProfile(result_labels=[label]))
    assert caught.value.reason is Reason.INVALID_REQUEST
