"""Records as CloudEvents."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from msgspec.structs import replace
from toolmesh.audit.v1 import audit_record_pb2 as record_pb
from toolmesh.common.v1 import caller_pb2

from services.audit.domain.merkle.merkle import leaf_hash
from services.audit.domain.model import LoggedRecord
from services.audit.domain.relay.cloudevent import CloudEvent, cloud_events, sequence_text, type_of
from services.audit.tests.sample import an_entry

LOGGED_AT = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)


def logged(sequence: int = 7, **changes: Any) -> LoggedRecord:
    canonical = an_entry(**changes).canonical
    return LoggedRecord("a-log", sequence, canonical, leaf_hash(canonical), LOGGED_AT)


def event_and_body(sequence: int = 7, **changes: Any) -> tuple[CloudEvent, dict[str, Any]]:
    event = cloud_events(logged(sequence, **changes), "toolmesh.local")[0]
    return event, orjson.loads(event.body)


def test_an_event_has_the_attributes_of_the_standard() -> None:
    event, body = event_and_body(record_id="record-0001", invocation_id="inv-1")
    assert body["specversion"] == "1.0"
    assert body["id"] == "record-0001"
    assert body["source"] == "//toolmesh.local/logs/a-log"
    assert body["type"] == "dev.toolmesh.tool.invocation.started"
    assert body["subject"] == "tools/core.echo/versions/1.0.0"
    assert body["datacontenttype"] == "application/json"
    assert body["time"] == body["data"]["event_time"]
    assert body["logtime"] == "2026-03-04T05:06:07.000089Z"
    assert body["partitionkey"] == event.key == "inv-1"
    assert body["shard"] == 0
    # Names of attributes are lower-case letters and digits; only a number of 32 bits is one, all else is text.
    assert [name for name in body if not re.fullmatch("[a-z0-9]{1,20}", name)] == []
    assert {name for name, value in body.items() if not isinstance(value, str)} == {"data", "shard"}


def test_the_event_data_is_the_hashed_form() -> None:
    record = logged(arguments_summary=b'{"big": 9007199254740993, "text": "\\u00e4"}')
    body = cloud_events(record, "toolmesh.local")[0].body
    assert record.canonical in body
    inside = body[body.index(b'"data":') + len(b'"data":') : -1]
    assert leaf_hash(inside).hex() == orjson.loads(body)["leafhash"]


def test_a_sequence_sorts_as_text_like_the_number() -> None:
    numbers = [0, 9, 10, 99, 2**31, 2**63 - 1]
    assert [int(text) for text in sorted(map(sequence_text, reversed(numbers)))] == numbers
    assert event_and_body(sequence=12)[1]["sequence"] == sequence_text(12)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"invocation_id": "inv", "trace_id": "trace"}, "inv"),
        ({"invocation_id": "", "trace_id": "trace"}, "trace"),
        ({"invocation_id": "", "trace_id": "", "record_id": "record-0001"}, "record-0001"),
    ],
)
def test_events_of_one_call_share_a_key(changes: dict[str, str], key: str) -> None:
    assert event_and_body(**changes)[0].key == key  # type: ignore[arg-type]


def test_an_event_without_a_tool_is_about_its_caller_and_else_about_its_writer() -> None:
    caller = caller_pb2.Caller(subject="did:web:alice")
    assert event_and_body(tool_version="", caller=caller)[1]["subject"] == "did:web:alice"
    assert event_and_body(tool_version="")[1]["subject"] == "executor"


def test_a_record_too_large_for_a_broker_refers_to_the_log_instead_of_carrying_data() -> None:
    record = logged(side_effects=["x" * 950_000])
    body = orjson.loads(cloud_events(record, "toolmesh.local")[0].body)
    assert "data" not in body
    assert body["dataref"] == "logs/a-log/records/7"
    assert body["leafhash"] == record.leaf_hash.hex()


def test_a_record_whose_payload_was_erased_still_has_an_event() -> None:
    record = replace(logged(), canonical=b"", erased_by=11)
    event = cloud_events(record, "toolmesh.local")[0]
    body = orjson.loads(event.body)
    assert "data" not in body
    assert body["type"] == "dev.toolmesh.record.erased"
    assert body["id"] == event.key == "erased-7"
    # Where to read who erased it, and why.
    assert body["subject"] == "logs/a-log/records/11"
    assert body["time"] == body["logtime"]
    assert body["leafhash"] == record.leaf_hash.hex()


def test_every_class_of_the_contract_has_the_type_that_its_comment_names(repository: Path) -> None:
    contract = (repository / "proto/toolmesh/audit/v1/audit_record.proto").read_text()
    families = "tool|log|policy|token|namespace|key|ticket|upstream|circuit"
    pattern = rf"// ((?:{families})\.[a-z_.]+)[^\n]*\n\s+EVENT_CLASS_(\w+) ="
    named = {word.lower(): name for name, word in re.findall(pattern, contract)}
    assert len(named) == len(record_pb.EventClass.items()) - 1
    assert {word: type_of(word) for word in named} == {word: f"dev.toolmesh.{name}" for word, name in named.items()}


def test_an_outcome_is_followed_by_the_moments_that_it_attests() -> None:
    path = "planned selected arguments_ready approved queued running succeeded"
    record = logged(7, event_class=record_pb.EVENT_CLASS_INVOCATION_SUCCEEDED, invocation_id="inv-1", state_path=path)
    own, *moments = cloud_events(record, "toolmesh.local")
    bodies = [orjson.loads(moment.body) for moment in moments]
    assert [body["type"].removeprefix("dev.toolmesh.tool.") for body in bodies] == [
        *(f"invocation.{name}" for name in ("planned", "selected", "arguments_ready", "queued", "started")),
        "result.created",
    ]
    assert {body["id"] for body in bodies}.isdisjoint({orjson.loads(own.body)["id"]})
    assert len({body["id"] for body in bodies}) == len(bodies)
    for moment, body in zip(moments, bodies, strict=True):
        assert [name for name in body if not re.fullmatch("[a-z0-9]{1,20}", name)] == []
        assert (moment.part, moment.key, body["leafhash"]) == (body["moment"] + 1, own.key, own.leaf_hash.hex())
    refused = logged(8, event_class=record_pb.EVENT_CLASS_PERMISSION_DECIDED, invocation_id="inv-1")
    assert [orjson.loads(event.body)["type"] for event in cloud_events(refused, "toolmesh.local")[1:]] == [
        "dev.toolmesh.tool.permission.requested"
    ]
