"""`toolmesh audit changes`: what calls changed, from what to what."""

from __future__ import annotations

import json
from typing import Any

import pytest
from toolmesh.audit.v1 import audit_record_pb2 as pb
from toolmesh.audit.v1 import audit_service_pb2
from toolmesh_sdk.cli.commands.audit.changes import matches_resource

from sdk.tests.cli.commands.audit.test_records import record

OLD, NEW = "sha256:" + "0" * 64, "sha256:" + "f" * 64


def effect(resource: str, **fields: Any) -> pb.RecordedEffect:
    return pb.RecordedEffect(resource=resource, operation="update", source=pb.EFFECT_SOURCE_OBSERVED, **fields)


@pytest.fixture
def log(mesh: Any) -> Any:
    changed = record(9, observed_effects=[effect("file:a/1", digest_before=OLD, digest_after=NEW), effect("order:7")])
    preview = record(8, foreseen_effects=[effect("file:a/1")], declared_effects=["update file:a/*"])
    mesh.answer("QueryRecords", audit_service_pb2.QueryRecordsResponse(records=[changed, preview, record(7)]))
    return mesh


def test_only_changes_that_happened_are_listed_with_digests(toolmesh: Any, log: Any) -> None:
    found = json.loads(toolmesh("audit", "changes", "--json").stdout)["changes"]
    assert [(each["sequence"], each["resource"]) for each in found] == [(9, "file:a/1"), (9, "order:7")]
    assert (found[0]["digest_before"], found[0]["digest_after"], found[0]["source"]) == (OLD, NEW, "observed")


def test_a_file_is_named_without_its_prefix(toolmesh: Any, log: Any) -> None:
    shown = toolmesh("audit", "changes", "a/1", "--invocation", "inv-1", "--tool", "echo").stdout
    assert OLD in shown
    assert NEW in shown
    assert "order:7" not in shown
    assert log.of("QueryRecords")[0].request.filter.invocation_id == "inv-1"


@pytest.mark.parametrize(
    ("pattern", "matches"), [("*", True), ("a/*", True), ("file:a/1", True), ("b/*", False), ("a/2", False)]
)
def test_patterns_name_resources(pattern: str, matches: bool) -> None:
    assert matches_resource("file:a/1", pattern) is matches
