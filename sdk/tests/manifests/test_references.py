"""The manifests that another one names."""

from __future__ import annotations

import pytest
from toolmesh.registry.v1.tool_manifest_pb2 import ToolManifest
from toolmesh_sdk import Reason
from toolmesh_sdk.errors import Violation, error_for_reason
from toolmesh_sdk.manifests.references import by_tool, lacks_reference, named_manifests


def manifest(tool_id: str, compensation: str = "", status: str = "", namespace: str = "acme") -> ToolManifest:
    made = ToolManifest(namespace=namespace, tool_id=tool_id, compensation_tool=compensation)
    made.idempotency.status_tool = status
    return made


def test_all_that_are_named_directly_or_by_others_are_found_once() -> None:
    book = manifest("book", "tools/acme.drop", "acme.status")
    drop, status = manifest("drop", "tools/acme.book"), manifest("status", "acme.audit")
    known = by_tool([book, drop, status, manifest("audit"), manifest("other"), manifest("pay", namespace="globex")])
    assert {each.tool_id for each in named_manifests(book, known)} == {"drop", "status", "audit"}
    assert named_manifests(drop, known)[0].tool_id == "book"
    assert named_manifests(manifest("audit"), known) == []
    assert named_manifests(manifest("new", "tools/globex.pay"), known) == []
    assert named_manifests(manifest("new", "tools/acme.new", "acme.nothing"), known) == []


@pytest.mark.parametrize(
    ("rule", "lacks"),
    [("compensation.exists", True), ("idempotency.status_tool_exists", True), ("compensation.name", False)],
)
def test_a_refusal_for_a_missing_tool_is_told_from_others(rule: str, lacks: bool) -> None:
    violations = [Violation("/a", "other", ""), Violation("/b", rule, "")]
    assert lacks_reference(error_for_reason(Reason.TOOL_MANIFEST_INVALID, violations=violations)) is lacks
