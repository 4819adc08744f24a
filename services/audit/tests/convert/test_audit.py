"""The canonical form of a record is complete and reversible."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
import rfc8785
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from toolmesh.audit.v1 import audit_record_pb2 as record_pb
from toolmesh.audit.v1 import audit_service_pb2 as pb
from toolmesh.common.v1 import caller_pb2

from libs.common.errors import MeshError, Reason
from services.audit.convert.audit import MAX_CANONICAL_BYTES, entries_of, entry_of, filter_of, record_of
from services.audit.tests.sample import a_record

MOMENT = Timestamp(seconds=1_790_000_000, nanos=123_456_000)

NO_DEADLINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def canonical(record: record_pb.AuditRecord, writer: str = "executor") -> bytes:
    return entry_of(record, writer).canonical


def refusal(record: record_pb.AuditRecord) -> MeshError:
    with pytest.raises(MeshError) as caught:
        canonical(record)
    assert caught.value.reason is Reason.AUDIT_RECORD_INVALID
    assert caught.value.metadata["record_id"] == record.record_id
    return caught.value


def fill(message: Message) -> None:
    """Set every field, at every depth, to something that is not its default."""
    for field in message.DESCRIPTOR.fields:
        kind = field.message_type.full_name if field.message_type else ""
        if kind == "google.protobuf.Timestamp":
            getattr(message, field.name).CopyFrom(MOMENT)
        elif kind == "google.protobuf.Duration":
            getattr(message, field.name).FromMicroseconds(1_500)
        elif field.is_repeated and kind:
            fill(getattr(message, field.name).add())
        elif kind:
            fill(getattr(message, field.name))
        elif field.is_repeated:
            getattr(message, field.name).append(f"one of {field.name}")
        elif field.enum_type:
            setattr(message, field.name, field.enum_type.values[-1].number)
        elif field.type == FieldDescriptor.TYPE_BYTES:
            setattr(message, field.name, orjson.dumps({"of": field.name}))
        elif field.type == FieldDescriptor.TYPE_STRING:
            setattr(message, field.name, f"a {field.name}")
        else:
            setattr(message, field.name, 1)


def full_record() -> record_pb.AuditRecord:
    record = record_pb.AuditRecord()
    fill(record)
    return record


def paths(message: Message, prefix: str = "") -> list[str]:
    """Return the path of every field, those of messages within it included."""
    found = []
    for field in message.DESCRIPTOR.fields:
        found.append(prefix + field.name)
        if field.message_type and field.message_type.full_name.startswith("toolmesh."):
            value = getattr(message, field.name)
            found += paths(value[0] if field.is_repeated else value, f"{prefix}{field.name}.")
    return found


def without(record: record_pb.AuditRecord, path: str) -> record_pb.AuditRecord:
    changed = record_pb.AuditRecord.FromString(record.SerializeToString())
    target: Any = changed
    *parents, name = path.split(".")
    for parent in parents:
        target = getattr(target, parent)
        target = target if isinstance(target, Message) else target[0]
    target.ClearField(name)
    return changed


@pytest.mark.parametrize("path", [p for p in paths(full_record()) if p not in ("writer", "event_time", "record_id")])
def test_every_field_of_the_contract_is_in_the_hashed_bytes(path: str) -> None:
    record = full_record()
    assert canonical(without(record, path)) != canonical(record)


def test_every_field_comes_back() -> None:
    record = full_record()
    assert record_of(canonical(record, writer=record.writer)) == record


def test_the_canonical_form_of_a_full_record() -> None:
    record = a_record(
        record_id="0190f3c0-aaaa-7bbb-8ccc-ddddeeeeffff",
        event_time=MOMENT,
        writer="somebody else",
        caller=caller_pb2.Caller(subject="did:web:a", tier=caller_pb2.CREDENTIAL_TIER_AGENT, expire_time=MOMENT),
        arguments_summary=b'{ "b": 1.0, "a": [1e3, null] }',
        error_reason=3801,
        latency=Duration(seconds=2, nanos=1_999),
    )
    assert canonical(record) == (
        b'{"arguments_summary":{"a":[1000,null],"b":1},"authorization":"allow",'
        b'"caller":{"expire_time":"2026-09-21T14:13:20.123456Z","subject":"did:web:a","tier":"agent"},'
        b'"error_reason":"E3801 AUDIT_UNAVAILABLE","event_class":"invocation_started",'
        b'"event_time":"2026-09-21T14:13:20.123456Z","latency_us":2000001,'
        b'"record_id":"0190f3c0-aaaa-7bbb-8ccc-ddddeeeeffff","status":"success",'
        b'"tool_version":"tools/core.echo/versions/1.0.0","trace_id":"0af7651916cd43dd8448eb211c80319c",'
        b'"writer":"executor"}'
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
moments = st.builds(
    Timestamp,
    seconds=st.integers(-62_135_596_800, 253_402_300_799),
    nanos=st.integers(0, 999_999).map(lambda u: u * 1000),
)
texts = st.text(max_size=30)
records = st.builds(
    record_pb.AuditRecord,
    record_id=st.uuids().map(str),
    event_class=st.integers(1, 27),
    event_time=moments,
    writer=st.just("executor"),
    caller=st.none()
    | st.builds(
        caller_pb2.Caller,
        subject=texts,
        tier=st.integers(0, 3),
        delegation_chain=st.lists(st.builds(caller_pb2.Actor, subject=texts, token_id=texts), max_size=3),
        scopes=st.lists(texts, max_size=3),
        expire_time=st.none() | moments,
    ),
    tool_version=texts,
    arguments_summary=st.just(b"") | json_values.map(orjson.dumps),
    determining_policies=st.lists(texts, max_size=3),
    replayed=st.booleans(),
    error_reason=st.sampled_from([0, 3000, 3801, 3999]),
    latency=st.none()
    | st.builds(Duration, seconds=st.integers(0, 10**6), nanos=st.integers(0, 999_999).map(lambda u: u * 1000)),
    cost_micros=st.integers(-(2**53) + 1, 2**53 - 1),
)  # fmt: skip


@NO_DEADLINE
@given(records)
def test_any_record_comes_back_as_it_was(record: record_pb.AuditRecord) -> None:
    rebuilt = record_of(canonical(record))
    assert canonical(rebuilt) == canonical(record)
    # The same JSON may be spelled in several ways; everything else is equal to the letter.
    assert bool(rebuilt.arguments_summary) == bool(record.arguments_summary)
    rebuilt.arguments_summary = record.arguments_summary
    assert rebuilt == record


@NO_DEADLINE
@given(records)
def test_any_record_has_the_bytes_of_rfc_8785(record: record_pb.AuditRecord) -> None:
    written = canonical(record)
    # The standard knows no integers: every number is a double.
    assert rfc8785.dumps(json.loads(written, parse_int=float)) == written


@pytest.mark.parametrize("payload", [b"1e300", b"-0.0", b"1e20", b"18446744073709551615", b"[1.5e-7]", b'"\\u0000"'])
def test_a_rebuilt_record_has_the_same_bytes(payload: bytes) -> None:
    written = canonical(a_record(result_summary=payload))
    assert canonical(record_of(written)) == written


def test_nanoseconds_are_cut_to_what_the_form_can_say() -> None:
    record = a_record(event_time=Timestamp(seconds=5, nanos=1_999))
    assert record_of(canonical(record)).event_time == Timestamp(seconds=5, nanos=1_000)


def test_the_form_distinguishes_empty_messages_from_unset_ones() -> None:
    rebuilt = record_of(canonical(a_record(latency=Duration(), caller=caller_pb2.Caller())))
    assert (rebuilt.HasField("latency"), rebuilt.HasField("caller")) == (True, True)
    rebuilt = record_of(canonical(a_record()))
    assert (rebuilt.HasField("latency"), rebuilt.HasField("caller")) == (False, False)


@pytest.mark.parametrize(
    "payload", [b"{", b'{"a":1,"a":2}', b"NaN", b"\xff", b"36893488147419103232", b"[" * 80 + b"]" * 80]
)
@pytest.mark.parametrize("field", ["arguments_summary", "result_summary"])
def test_a_summary_that_is_not_json_is_refused(field: str, payload: bytes) -> None:
    error = refusal(a_record(**{field: payload}))
    assert [violation.path for violation in error.violations] == [f"records[0].{field}"]


@pytest.mark.parametrize(
    "changes",
    [
        {"event_time": Timestamp(seconds=10**15)},
        {"event_time": Timestamp(nanos=-1)},
        {"event_class": 99},
        {"latency": Duration(seconds=2**62)},
        {"caller": caller_pb2.Caller(tier=9)},  # type: ignore[arg-type]
        {"caller": caller_pb2.Caller(expire_time=Timestamp(seconds=-(10**15)))},
        {"side_effects": ["x" * MAX_CANONICAL_BYTES]},
    ],
)
def test_a_record_without_a_canonical_form_is_refused(changes: dict[str, Any]) -> None:
    refusal(a_record(**changes))


def test_a_field_that_this_build_does_not_know_is_refused_rather_than_left_out() -> None:
    unknown = b"\xfa\x3f\x01x"  # field 1023, the text "x"
    refusal(record_pb.AuditRecord.FromString(a_record().SerializeToString() + unknown))
    caller = caller_pb2.Caller.FromString(unknown)
    refusal(a_record(caller=caller))


def test_text_unfit_for_the_index_is_found_by_its_searchable_form() -> None:
    subject = "did:web:\0" + "x" * 9000
    request = pb.AppendRecordsRequest(batch=1, records=[a_record(caller=caller_pb2.Caller(subject=subject))])
    [entry] = entries_of(request, "executor")
    assert record_of(entry.canonical).caller.subject == subject
    assert entry.subject == filter_of(pb.RecordFilter(subject=subject)).subject
    assert "\0" not in entry.subject


def test_a_filter_outside_the_calendar_is_refused() -> None:
    with pytest.raises(MeshError) as caught:
        filter_of(pb.RecordFilter(to_time=Timestamp(seconds=10**15)))
    assert caught.value.reason is Reason.INVALID_REQUEST
    assert [violation.path for violation in caught.value.violations] == ["filter.to_time"]


def test_a_filter_of_moments_keeps_them() -> None:
    found = filter_of(pb.RecordFilter(from_time=Timestamp(seconds=0), to_time=MOMENT))
    assert found.from_time == datetime(1970, 1, 1, tzinfo=UTC)
    assert found.to_time == datetime(2026, 9, 21, 14, 13, 20, 123456, tzinfo=UTC)
