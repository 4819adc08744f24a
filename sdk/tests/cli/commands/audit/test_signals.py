"""`toolmesh audit signals`: who causes signals of abuse, and of how many calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from toolmesh.audit.v1 import audit_record_pb2 as pb
from toolmesh.audit.v1 import audit_service_pb2
from toolmesh.common.v1.error_table import Reason
from toolmesh_sdk.cli.commands.audit import signals
from toolmesh_sdk.cli.commands.audit.signals import SignalCount, count_signals

from sdk.tests.cli.commands.audit.test_records import record


def call(sequence: int, reason: Reason | None = None, subject: str = "alice", **fields: Any) -> Any:
    failed = {"status": pb.RECORD_STATUS_ERROR, "error_reason": int(reason)} if reason is not None else {}
    made = record(sequence, **failed)
    made.record.caller.subject = subject
    for name, value in fields.items():
        setattr(made.record, name, value)
    return made


RECORDS = [
    call(9, Reason.SCOPE_MISSING, "mallory"),
    call(8, Reason.PERMISSION_DENIED, "mallory", refused_calls=4),
    call(7, Reason.RESULT_INVALID),
    call(6),
    # The decision of a call, which is not its end.
    call(5, status=pb.RECORD_STATUS_UNSPECIFIED),
    # An act of an administrator.
    call(4, Reason.PERMISSION_DENIED, "bob", invocation_id=""),
]
DENIED = SignalCount("caller", "mallory", "denied", 5, 5)
INVALID = SignalCount("provider", "core", "invalid_results", 1, 7)


def test_signals_are_counted_by_party_with_its_calls() -> None:
    assert count_signals(each.record for each in RECORDS) == [DENIED, INVALID]


def test_the_number_of_parties_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "_MAX_PARTIES", 4)
    many = [call(number, Reason.SCOPE_MISSING, f"s{number}").record for number in range(50)]
    assert len(count_signals(many)) == 3


def test_the_command_shows_the_parties_and_says_how_much_it_read(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("QueryRecords", audit_service_pb2.QueryRecordsResponse(records=RECORDS))
    document = json.loads(toolmesh("audit", "signals", "--json").stdout)
    assert (document["read"], [each["name"] for each in document["signals"]]) == (6, ["mallory", "core"])
    document = json.loads(toolmesh("audit", "signals", "--by", "provider", "--json").stdout)
    assert [each["name"] for each in document["signals"]] == ["core"]
    ran = toolmesh("audit", "signals", "--records", "6", "-n", "1")
    assert (ran.exit_code, "mallory" in ran.stdout, "core" in ran.stdout) == (0, True, False)
    assert ran.stderr
    mesh.answer("QueryRecords", audit_service_pb2.QueryRecordsResponse())
    ran = toolmesh("audit", "signals")
    assert (ran.exit_code, ran.stdout) == (0, "")
