"""Records as a SIEM reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from toolmesh_sdk.audit.export.ocsf import ocsf_event, ocsf_line
from toolmesh_sdk.audit.format.events import RecordLocation

from sdk.tests.audit_sample import LOG, a_form

LOCATION, LEAF = RecordLocation(LOG, 1, 42), bytes(32)
# What version 1.3 of the schema requires of class 6003.
REQUIRED = {
    *("activity_id", "actor", "api", "category_uid", "class_uid", "metadata", "severity_id", "src_endpoint", "time"),
    "type_uid",
}


def event(**changes: Any) -> dict[str, Any]:
    return ocsf_event(LOCATION, LEAF, a_form(7, **changes))


def test_what_the_class_requires_is_there_also_for_the_barest_record() -> None:
    bare = {
        "record_id": "r",
        "event_class": "shard_opened",
        "event_time": "2026-11-15T05:00:00.000000Z",
        "writer": "audit",
    }
    for made in (event(), ocsf_event(LOCATION, LEAF, bare)):
        assert set(made) >= REQUIRED
        assert (made["class_uid"], made["category_uid"]) == (6003, 6)
        assert made["type_uid"] == 600300 + made["activity_id"]
        assert set(made["metadata"]) >= {"version", "product"}
        assert made["actor"]["app_name"]
        assert made["api"]["operation"]
        assert made["src_endpoint"]["svc_name"]


def test_who_did_what_to_which_tool_under_which_policy() -> None:
    made = event(
        trace_id="t" * 32,
        mutation_class="write_irreversible",
        authorization="deny",
        determining_policies=["p1", "p2"],
        policy_set_version="v3",
        status="error",
        error_reason="E3301 PERMISSION_DENIED",
        latency_us=12_345,
        caller={"subject": "did:web:x:alice", "agent": "planner", "tenant": "acme", "session_id": "s", "peer": "edge"},
    )
    assert made["actor"] == {
        "app_name": "planner",
        "user": {"uid": "did:web:x:alice"},
        "session": {"uid": "s"},
        "authorizations": [
            {"decision": "Denied", "policy": {"uid": "p1", "version": "v3"}},
            {"decision": "Denied", "policy": {"uid": "p2", "version": "v3"}},
        ],
    }
    assert (made["activity_name"], made["status"], made["severity"]) == ("Update", "Failure", "Medium")
    assert (made["status_code"], made["status_detail"], made["duration"]) == ("E3301", "PERMISSION_DENIED", 12)
    assert made["resources"] == [
        {"uid": "tools/core.echo/versions/1.0.0", "name": "core.echo", "type": "tool", "version": "1.0.0"}
    ]
    assert made["src_endpoint"] == {"svc_name": "edge"}
    assert made["metadata"]["correlation_uid"] == "t" * 32
    assert made["metadata"]["tenant_uid"] == "acme"
    assert made["metadata"]["sequence"] == 42
    assert made["time"] == 1_794_718_807_000


def test_nothing_that_a_record_says_is_lost() -> None:
    made = event(ticket="tickets/1", follows="other")
    assert made["unmapped"]["ticket"] == "tickets/1"
    assert made["unmapped"]["follows"] == "other"
    assert made["unmapped"]["caller"] == {"scopes": ["tools:call"]}
    assert made["unmapped"]["arguments_summary"] == a_form(7)["arguments_summary"]


@pytest.mark.parametrize(
    ("changes", "activity", "status", "severity"),
    [
        ({"mutation_class": "read_only"}, 2, 1, 1),
        ({"mutation_class": "write_reversible", "status": "timeout"}, 3, 2, 2),
        ({"status": "", "authorization": "requires_approval"}, 99, 0, 1),
    ],
)
def test_enum_labels_become_enum_numbers(changes: dict[str, Any], activity: int, status: int, severity: int) -> None:
    made = event(**changes)
    assert (made["activity_id"], made["status_id"], made["severity_id"]) == (activity, status, severity)


def test_an_event_is_one_line_with_every_digit() -> None:
    line = ocsf_line(LOCATION, LEAF, a_form(7))
    assert b"\n" not in line
    assert b"9007199254740993" in line
    assert json.loads(line) == event()


def test_the_mapping_is_documented(repository: Path) -> None:
    text = (repository / "docs" / "audit.md").read_text()
    made = event(latency_us=1, error_reason="E3000 INTERNAL")
    assert [name for name in made if not name.endswith("_name") and f"`{name}" not in text] == []
