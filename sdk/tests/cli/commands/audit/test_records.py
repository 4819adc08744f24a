"""`toolmesh audit`: the last records, the next ones, and one of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.audit.v1 import audit_record_pb2 as pb
from toolmesh.audit.v1 import audit_service_pb2, checkpoint_pb2
from toolmesh.common.v1 import caller_pb2, error_reason_pb2
from toolmesh_sdk import Reason

from libs.common.errors import MeshError


def record(sequence: int, **fields: Any) -> Any:
    body = pb.AuditRecord(
        record_id=f"rec-{sequence}",
        event_class=pb.EVENT_CLASS_INVOCATION_SUCCEEDED,
        event_time=Timestamp(seconds=1_800_000_000),
        tool_version="tools/core.echo/versions/1.0.0",
        caller=caller_pb2.Caller(subject="did:web:x:alice"),
        invocation_id="inv-1",
        **{"status": pb.RECORD_STATUS_SUCCESS, **fields},
    )
    return pb.LoggedRecord(
        name=f"logs/main/records/{sequence}",
        sequence=sequence,
        record=body,
        canonical_json=b'{"a":1}',
        leaf_hash=b"\x01",
    )


@pytest.fixture
def log(mesh: Any) -> Any:
    page = audit_service_pb2.QueryRecordsResponse
    mesh.answer("QueryRecords", page(records=[record(9), record(8)], next_page_token="p2"), page(records=[record(7)]))
    checkpoint = checkpoint_pb2.Checkpoint(log_id="main", tree_size=10)
    mesh.answer("GetCheckpoint", audit_service_pb2.GetCheckpointResponse(checkpoint=checkpoint))
    mesh.answer("GetRecord", audit_service_pb2.GetRecordResponse(record=record(9)))
    return mesh


def test_the_last_records_are_shown_oldest_first(toolmesh: Any, log: Any) -> None:
    ran = toolmesh("audit", "tail", "-n", "3", "--tool", "echo", "--trace", "t" * 32, "--invocation", "inv-1")
    lines = ran.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["7", "8", "9"]
    for word in ("invocation_succeeded", "core.echo@1.0.0", "success", "did:web:x:alice", "inv-1", "2027-01-15"):
        assert word in lines[0]
    asked = log.of("QueryRecords")[0].request
    assert (asked.filter.tool_prefix, asked.filter.trace_id, asked.filter.invocation_id) == (
        *("tools/core.echo/", "t" * 32),
        "inv-1",
    )
    assert asked.page_size == 3


def test_no_more_are_read_than_were_asked_for(toolmesh: Any, log: Any) -> None:
    assert len(toolmesh("audit", "tail", "-n", "2").stdout.splitlines()) == 2
    assert len(log.of("QueryRecords")) == 1


def test_a_failed_step_shows_its_reason(toolmesh: Any, log: Any) -> None:
    denied = record(
        5,
        status=pb.RECORD_STATUS_ERROR,
        authorization=pb.AUTHORIZATION_OUTCOME_DENY,
        error_reason=error_reason_pb2.ERROR_REASON_PERMISSION_DENIED,
    )
    log.answer("QueryRecords", audit_service_pb2.QueryRecordsResponse(records=[denied]))
    assert "PERMISSION_DENIED" in toolmesh("audit", "tail").stdout


def test_an_erased_record_says_so_and_when_the_log_took_it(toolmesh: Any, mesh: Any) -> None:
    erased = pb.LoggedRecord(sequence=3, log_time=Timestamp(seconds=1_800_000_000), erased_by=16)
    mesh.answer("QueryRecords", audit_service_pb2.QueryRecordsResponse(records=[erased]))
    [line] = toolmesh("audit", "tail").stdout.splitlines()
    assert all(word in line for word in ("3", "2027-01-15", "erased", "16"))
    assert "1970" not in line


def test_records_of_previews_are_marked(toolmesh: Any, log: Any) -> None:
    shown = audit_service_pb2.QueryRecordsResponse(records=[record(6, preview=True), record(5)])
    log.answer("QueryRecords", shown)
    assert ["(preview)" in line for line in toolmesh("audit", "tail").stdout.splitlines()] == [False, True]


@pytest.mark.usefixtures("log")
def test_records_as_json_are_one_document(toolmesh: Any) -> None:
    records = json.loads(toolmesh("audit", "tail", "--json", "-n", "3").stdout)["records"]
    assert [each["sequence"] for each in records] == [7, 8, 9]
    assert records[0]["record"]["event_class"] == "invocation_succeeded"
    assert records[0]["record"]["event_time"] == "2027-01-15T08:00:00.000Z"


def test_a_zero_is_there_and_what_is_empty_is_not(toolmesh: Any, log: Any) -> None:
    log.answer("QueryRecords", audit_service_pb2.QueryRecordsResponse(records=[record(0)]))
    first = json.loads(toolmesh("audit", "tail", "--json").stdout)["records"][0]
    assert (first["sequence"], first["record"]["replayed"]) == (0, False)
    assert not {"ticket", "side_effects", "authorization", "latency"} & set(first["record"])


def test_an_empty_log_is_reported_on_stderr(toolmesh: Any, log: Any) -> None:
    log.answer("QueryRecords", audit_service_pb2.QueryRecordsResponse())
    ran = toolmesh("audit", "tail")
    assert (ran.exit_code, ran.stdout) == (0, "")
    assert ran.stderr


def test_following_goes_on_behind_the_last_record_one_line_each(toolmesh: Any, log: Any) -> None:
    step = audit_service_pb2.WatchRecordsResponse
    log.answer("WatchRecords", [step(record=record(10)), step(record=record(11)), MeshError(Reason.TOKEN_REVOKED)])
    ran = toolmesh("audit", "tail", "-n", "2", "-f", "--json")
    lines = [json.loads(line) for line in ran.stdout.splitlines()[:4]]
    assert [line["sequence"] for line in lines] == [8, 9, 10, 11]
    assert log.of("WatchRecords")[0].request.from_sequence == 10
    assert ran.exit_code == 4


def test_following_an_empty_log_begins_where_it_ended_before_the_query(toolmesh: Any, log: Any) -> None:
    log.answer("QueryRecords", audit_service_pb2.QueryRecordsResponse())
    log.answer("WatchRecords", MeshError(Reason.TOKEN_REVOKED))
    toolmesh("audit", "tail", "-f")
    assert [call.method for call in log.seen if call.method != "IssueToken"] == [
        *("GetCheckpoint", "QueryRecords"),
        "WatchRecords",
    ]
    assert log.of("WatchRecords")[0].request.from_sequence == 10


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("9", "logs/main/records/9"),
        ("rec-9", "records/rec-9"),
        ("logs/main/records/9", "logs/main/records/9"),
    ],
)
def test_one_record_is_found_by_any_of_its_names(toolmesh: Any, log: Any, given: str, asked: str) -> None:
    document = json.loads(toolmesh("audit", "show", given, "--json").stdout)
    assert log.of("GetRecord")[0].request.name == asked
    assert (document["canonical_json"], document["leaf_hash"]) == ('{"a":1}', "01")
    assert json.loads(toolmesh("audit", "show", given).stdout)["record"]["record_id"] == "rec-9"


def test_a_missing_scope_is_authorization_refused(toolmesh: Any, log: Any) -> None:
    log.answer("QueryRecords", MeshError(Reason.SCOPE_MISSING, metadata={"required_scopes": "audit:read"}))
    ran = toolmesh("audit", "tail")
    assert ran.exit_code == 4
    assert "audit:read" in ran.stderr


def test_records_are_chosen_by_whom_how_and_when(toolmesh: Any, log: Any) -> None:
    chosen = ("--subject", "did:web:x:alice", "--status", "error", "--decision", "requires_approval")
    ran = toolmesh("audit", "tail", *chosen, "--since", "2027-01-15T08:00:00Z", "--until", "2027-01-16")
    assert ran.exit_code == 0
    asked = log.of("QueryRecords")[0].request.filter
    assert (asked.subject, asked.status) == ("did:web:x:alice", pb.RECORD_STATUS_ERROR)
    assert asked.authorization == pb.AUTHORIZATION_OUTCOME_REQUIRES_APPROVAL
    assert (asked.from_time.seconds, asked.to_time.seconds) == (1_800_000_000, 1_800_057_600)


def test_a_span_reaches_back_from_now_and_holds_while_following(toolmesh: Any, log: Any) -> None:
    log.answer("WatchRecords", MeshError(Reason.TOKEN_REVOKED))
    toolmesh("audit", "tail", "--since", "2h", "--status", "timeout", "-f")
    for method in ("QueryRecords", "WatchRecords"):
        asked = log.of(method)[0].request.filter
        assert asked.status == pb.RECORD_STATUS_TIMEOUT
        assert timedelta(hours=1) < datetime.now(UTC) - asked.from_time.ToDatetime(UTC) < timedelta(hours=3)


@pytest.mark.parametrize(
    "wrong",
    [("--since", "lately"), ("--until", "9" * 20 + "d"), ("--status", "fine"), ("--decision", "maybe")],
)
def test_a_filter_that_cannot_be_meant_is_two_and_names_its_option(
    toolmesh: Any, log: Any, wrong: tuple[str, str]
) -> None:
    ran = toolmesh("audit", "tail", *wrong)
    assert (ran.exit_code, log.of("QueryRecords")) == (2, [])
    assert wrong[0] in ran.stderr
