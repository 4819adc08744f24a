"""The facts of a tool for made-up questions are those that services of the mesh send."""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.registry.v1 import tool_health_pb2, tool_trust_pb2, tool_version_pb2
from toolmesh.registry.v1.trust_service_pb2 import CONTRIBUTION_STAGE_BETA
from toolmesh_sdk.cli.inputs.tool_facts import facts_of_version

from libs.authz_client.tool_attributes import tool_attributes
from services.registry.tests.manifests import reader


def version() -> tool_version_pb2.ToolVersion:
    trust = tool_trust_pb2.ToolTrust(
        score=41, stage=CONTRIBUTION_STAGE_BETA, compute_time=Timestamp(seconds=1_700_000_000)
    )
    return tool_version_pb2.ToolVersion(
        name="tools/acme.find/versions/1.2.0",
        digest="sha256:1",
        manifest=reader("acme.find", tags=["mail"]),
        trust=trust,
        health=tool_health_pb2.VersionHealth(health=tool_health_pb2.TOOL_HEALTH_DEGRADED),
    )


def test_facts_of_a_version_are_those_that_services_send() -> None:
    ours, theirs = facts_of_version(version()), tool_attributes(version(), 1_700_000_000 + 7200)
    assert (ours.tool_trust, ours.tool_stage, "mail" in ours.tags) == (41, "beta", True)
    assert ours.tool_health == "degraded"
    theirs.tool_trust_age_hours = ours.tool_trust_age_hours
    assert ours == theirs
