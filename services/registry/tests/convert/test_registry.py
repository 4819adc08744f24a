"""Conversions of the registry service."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from toolmesh.registry.v1 import tool_version_pb2
from toolmesh.registry.v1.tool_health_pb2 import TOOL_HEALTH_DEGRADED
from toolmesh.registry.v1.trust_service_pb2 import CONTRIBUTION_STAGE_BETA

from libs.common.auth.identity import Identity
from libs.common.call_context import Call
from libs.common.tool_names import ToolName
from libs.common.trace_context import continue_trace
from services.registry.convert import registry as convert
from services.registry.convert.manifest import manifest_of
from services.registry.domain.catalog.changes import Position
from services.registry.domain.catalog.watch_tools import (
    Event,
    HealthChanged,
    Heartbeat,
    SnapshotComplete,
    TrustChanged,
    VersionRemoved,
    VersionUpserted,
)
from services.registry.domain.health.health import Health, VersionHealth
from services.registry.domain.model import Deprecation, LifecycleState, Standing, ToolVersion, VersionHead
from services.registry.domain.trust.stages import Stage
from services.registry.domain.trust.tool_trust import ToolTrust
from services.registry.tests.manifests import reader

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def version(state: LifecycleState = LifecycleState.AVAILABLE, deprecation: Deprecation | None = None) -> ToolVersion:
    manifest = manifest_of(reader())
    standing = Standing(state, NOW, 255, "because", deprecation)
    head = VersionHead(manifest.name, manifest.version, manifest.digest, 1, NOW, "operator", standing)
    return ToolVersion(head, manifest)


class Trusts:
    """Trusts every tool alike."""

    def __init__(self, **trust: Any) -> None:
        self._trust = trust

    def scores_of(self, tools: Iterable[ToolName]) -> Mapping[ToolName, float]:
        return dict.fromkeys(tools, 0.5)

    def trust_in(self, tool: ToolName) -> ToolTrust:
        return ToolTrust(tool, **self._trust)

    def changed_since(self, revision: int) -> tuple[int, Sequence[ToolTrust]]:
        return revision, ()


class Healths:
    """Holds every version degraded."""

    def health_of(self, version: ToolVersion) -> VersionHealth:
        return self.health_named(version.head.name)

    def health_named(self, name: str) -> VersionHealth:
        return VersionHealth(name, Health.DEGRADED, "because")

    def changed_since(self, revision: int) -> tuple[int, Sequence[VersionHealth]]:
        return revision, ()


def test_a_version_has_its_health_where_it_is_known() -> None:
    health = convert.tool_version(version(), None, None, Healths()).health
    assert (health.version, health.reason) == (version().head.name, "because")
    assert health.health == TOOL_HEALTH_DEGRADED
    assert not convert.tool_version(version()).HasField("health")


def test_a_version_has_the_trust_in_its_tool() -> None:
    trusts = Trusts(score=61, compute_time=NOW, stage=Stage.BETA)
    trust = convert.tool_version(version(), trusts).trust
    assert (trust.tool, trust.score) == ("tools/acme.find_order", 61)
    assert (trust.compute_time.ToDatetime(UTC), trust.stage) == (NOW, CONTRIBUTION_STAGE_BETA)


@pytest.mark.parametrize(
    ("registrar", "verified", "known"),
    [("operator", False, True), ("did:web:acme.example", False, False), ("did:web:acme.example", True, True)],
)
def test_the_registrar_of_a_version_may_make_its_publisher_known(registrar: str, verified: bool, known: bool) -> None:
    made = version()
    made = replace(made, head=replace(made.head, registered_by=registrar))
    assert convert.tool_version(made, Trusts(publisher_verified=verified)).trust.publisher_verified is known


@pytest.mark.parametrize("state", list(LifecycleState))
def test_every_state_has_an_enum_value_in_the_contract(state: LifecycleState) -> None:
    message = convert.tool_version(version(state))
    assert tool_version_pb2.LifecycleState.Name(message.state) == f"LIFECYCLE_STATE_{state.name}"


def test_the_contract_has_no_state_that_the_domain_lacks() -> None:
    assert len(LifecycleState) == len(tool_version_pb2.LifecycleState.keys()) - 1


def test_a_version_is_written_whole() -> None:
    message = convert.tool_version(version(LifecycleState.DEPRECATED, Deprecation(NOW, None, "next", "guide")))
    assert message.manifest == reader()
    assert (message.etag, message.state_reason, message.registered_by) == ("ff", "because", "operator")
    assert message.create_time.ToDatetime(UTC) == NOW
    assert (message.deprecation.successor, message.deprecation.migration_guide_url) == ("next", "guide")
    assert not message.deprecation.HasField("sunset_time")


def test_the_subject_of_the_token_is_the_actor() -> None:
    call = Call("method", continue_trace(None, "", sample_ratio=0.0), peer="edge")
    assert convert.actor_of(call).recorded_name == "edge"
    call.identity = Identity("did:web:acme.example:users:bob", "token", 0.0)
    assert convert.actor_of(call).recorded_name == "did:web:acme.example:users:bob"


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (VersionUpserted(version(), Position("e", 1)), "upserted"),
        (VersionRemoved("tools/acme.a/versions/1.0.0", Position("e", 1)), "removed"),
        (SnapshotComplete(Position("e", 1)), "snapshot_complete"),
        (Heartbeat(Position("e", 1)), "heartbeat"),
        (TrustChanged([ToolTrust(version().head.tool)], Position("e", 1)), "trusts"),
        (HealthChanged([VersionHealth(version().head.name)], Position("e", 1)), "healths"),
    ],
)
def test_every_event_has_its_kind_and_its_token(event: Event, kind: str) -> None:
    step = convert.watch_response(event, Trusts(), Healths())
    assert step.WhichOneof("event") == kind
    assert Position.of_token(step.resume_token) == Position("e", 1)


def test_inside_a_snapshot_there_is_no_token() -> None:
    assert convert.watch_response(VersionUpserted(version(), None), Trusts(), Healths()).resume_token == ""
