"""Conversions of the registry service."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from toolmesh.registry.v1 import tool_version_pb2

from libs.common.auth.identity import Identity
from libs.common.call_context import Call
from libs.common.trace_context import continue_trace
from services.registry.convert import registry as convert
from services.registry.convert.manifest import manifest_of
from services.registry.domain.catalog.changes import Position
from services.registry.domain.catalog.watch_tools import (
    Event,
    Heartbeat,
    SnapshotComplete,
    VersionRemoved,
    VersionUpserted,
)
from services.registry.domain.model import Deprecation, LifecycleState, Standing, ToolVersion, VersionHead
from services.registry.tests.manifests import reader

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def version(state: LifecycleState = LifecycleState.AVAILABLE, deprecation: Deprecation | None = None) -> ToolVersion:
    manifest = manifest_of(reader())
    standing = Standing(state, NOW, 255, "because", deprecation)
    head = VersionHead(manifest.name, manifest.version, manifest.digest, 1, NOW, "operator", standing)
    return ToolVersion(head, manifest)


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
    ],
)
def test_every_event_has_its_kind_and_its_token(event: Event, kind: str) -> None:
    step = convert.watch_response(event)
    assert step.WhichOneof("event") == kind
    assert Position.of_token(step.resume_token) == Position("e", 1)


def test_inside_a_snapshot_there_is_no_token() -> None:
    assert convert.watch_response(VersionUpserted(version(), None)).resume_token == ""
