"""`toolmesh audit acts`: who changed what, and which resource a text names."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.audit.v1 import audit_record_pb2 as pb
from toolmesh.audit.v1 import audit_service_pb2
from toolmesh.common.v1 import caller_pb2


def act(sequence: int, caller: caller_pb2.Caller | None) -> pb.LoggedRecord:
    body = pb.AuditRecord(
        record_id=f"rec-{sequence}",
        event_class=pb.EVENT_CLASS_TOOL_STATE_CHANGED,
        event_time=Timestamp(seconds=1_800_000_000),
        caller=caller,
        writer="registry",
        previous_state="available",
        state="disabled",
        act=pb.AdministrativeAct(resource="tools/core.echo/versions/1.0.0", reason="walk"),
    )
    return pb.LoggedRecord(name=f"logs/main/records/{sequence}", sequence=sequence, record=body)


def test_acts_say_who_changed_what_and_why(toolmesh: Any, mesh: Any, signer: Any) -> None:
    callers = [
        caller_pb2.Caller(subject="did:web:x:alice", agent="did:web:x:bot", peer="edge"),
        caller_pb2.Caller(subject="did:web:x:alice", peer="edge"),
        caller_pb2.Caller(peer="operator"),
        None,
    ]
    page = audit_service_pb2.QueryRecordsResponse
    mesh.answer("QueryRecords", page(records=[act(9 - n, caller) for n, caller in enumerate(callers)]), page(), page())
    lines = toolmesh("audit", "acts", "tools/core.echo", "--subject", "did:web:x:alice").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["9", "8", "7", "6"]
    assert [line.partition("by ")[2].removesuffix("  walk") for line in lines] == [
        "did:web:x:bot for did:web:x:alice",
        "did:web:x:alice",
        "operator",
        "registry",
    ]
    assert "tools/core.echo/versions/1.0.0 available -> disabled" in lines[0]
    ran = toolmesh("audit", "acts", signer.mint(jti="t-1"), "--json")
    assert json.loads(ran.stdout) == {"records": []}
    toolmesh("audit", "acts", "tools/a.b/versions/1.0.0")
    filters = [seen.request.filter for seen in mesh.of("QueryRecords")]
    assert [asked.resource_prefix for asked in filters] == [
        "tools/core.echo",
        "tokens/t-1",
        "tools/a.b/versions/1.0.0",
    ]
    assert all(asked.acts_only for asked in filters)
