"""Lines of an export, against the contract and against what the relay sends."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from toolmesh.audit.v1.audit_record_pb2 import EventClass
from toolmesh_sdk.audit.format.canonical import UnreadableJsonError
from toolmesh_sdk.audit.format.events import RecordLocation, event_type, read_line, write_line

from sdk.tests.audit_sample import LOG, a_form, leaf_of, payload_of
from services.audit.domain.model import LoggedRecord
from services.audit.domain.relay.cloudevent import cloud_events


def test_types_are_those_that_the_contract_names(repository: Path) -> None:
    text = (repository / "proto/toolmesh/audit/v1/audit_record.proto").read_text()
    families = "tool|log|policy|token|namespace|key|ticket|upstream|circuit"
    named = re.findall(rf"// ((?:{families})\.[a-z_.]+[a-z])[^\n]*\n  EVENT_CLASS_([A-Z_]+) =", text)
    assert len(named) == len(EventClass.items()) - 1
    assert {word.lower(): event_type(word.lower()) for _, word in named} == {
        word.lower(): f"dev.toolmesh.{name}" for name, word in named
    }


def test_a_line_is_the_event_that_the_relay_sends_but_for_the_clock_of_the_log() -> None:
    form, place = a_form(7), RecordLocation(LOG, 0, 7)
    payload = payload_of(form)
    line, _ = write_line(place, leaf_of(payload), payload)
    mine = json.loads(line)
    trust_domain, log_id = LOG.split("/audit/")
    relayed = json.loads(
        cloud_events(LoggedRecord(log_id, 7, payload, leaf_of(payload), datetime.now(UTC)), trust_domain)[0].body
    )
    shared = set(mine) - {"shard"}
    assert {name: relayed[name] for name in shared} == {name: mine[name] for name in shared}


def test_attributes_are_what_cloudevents_asks_for() -> None:
    payload = payload_of(a_form(3))
    event = json.loads(write_line(RecordLocation(LOG, 2, 3), leaf_of(payload), payload)[0])
    assert event["specversion"] == "1.0"
    assert all(re.fullmatch("[a-z0-9]{1,20}", name) for name in event)
    assert all(event[name] for name in ("id", "source", "type", "time", "subject"))
    assert event["sequence"] == "0000000000000000003"
    assert json.dumps(event["data"], sort_keys=True) == json.dumps(a_form(3), sort_keys=True)


def test_the_data_is_the_canonical_form_byte_for_byte() -> None:
    payload = payload_of(a_form(3))
    assert write_line(RecordLocation(LOG, 0, 3), leaf_of(payload), payload)[0].endswith(b'"data":' + payload + b"}")


def test_a_line_is_read_with_the_hash_of_its_data() -> None:
    form = a_form(3, arguments_summary={"share": 0.1, "big": 1e21, "\U0001f600": 1, "\ufb01": 2})
    from libs.common.json.canonical import canonical

    payload = canonical(form)
    text = write_line(RecordLocation(LOG, 0, 3), leaf_of(payload), payload)[0]
    for written in (text, text.replace(b'"data":', b'"data": ')):
        line = read_line(written, RecordLocation(LOG, 0, 3))
        assert line.exact is (written == text)
        assert line.leaf == line.claimed == leaf_of(payload)
        assert line.form == form


def test_a_line_of_another_place_is_not_exact() -> None:
    payload = payload_of(a_form(3))
    text = write_line(RecordLocation(LOG, 0, 3), leaf_of(payload), payload)[0]
    assert read_line(text, RecordLocation(LOG, 0, 3)).exact
    assert not read_line(text, RecordLocation(LOG, 0, 4)).exact


@pytest.mark.parametrize(
    "text", [b"[]", b"{}", b'{"leafhash":1}', b'{"leafhash":"xy"}', b'{"leafhash":"00","data":[]}']
)
def test_what_is_no_event_of_an_export_is_refused(text: bytes) -> None:
    with pytest.raises(UnreadableJsonError):
        read_line(text, RecordLocation(LOG, 0, 3))


def test_a_payload_that_is_no_object_cannot_be_exported() -> None:
    for payload in (b"[]", b"not json"):
        with pytest.raises(UnreadableJsonError):
            write_line(RecordLocation(LOG, 0, 3), leaf_of(payload), payload)
