"""Canonical forms are accepted exactly if the log would have written the same bytes."""

from __future__ import annotations

import json
import random
from typing import Any

import orjson
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from toolmesh.audit.v1 import audit_record_pb2 as record_pb
from toolmesh.common.v1 import caller_pb2, error_reason_pb2

from libs.common.errors import MeshError, Reason
from libs.common.json.canonical import canonical
from services.audit.convert.audit import canonical_form, entry_of, record_of
from services.audit.convert.form import entries_of
from services.audit.domain.model import Entry
from services.audit.tests.sample import a_record
from tests.harness.evidence.es6_numbers import es6_doubles

WRITER = "executor"
TEXT = st.text(max_size=20)
FULL: dict[str, Any] = {
    "caller": caller_pb2.Caller(
        subject="did:web:a.example:u",
        tier=caller_pb2.CREDENTIAL_TIER_AGENT,
        delegation_chain=[caller_pb2.Actor(subject="did:web:a.example:u", token_id="t")],
        scopes=["tools:call"],
        expire_time=Timestamp(seconds=1_900_000_000),
    ),
    "latency": Duration(nanos=1_500_000),
    "error_reason": error_reason_pb2.ERROR_REASON_TOOL_TIMEOUT,
    "attempt": 1,
    "replayed": True,
    "determining_policies": ["p1", "p2"],
    "result_summary": b'{"a":[1,2.5,null]}',
}

NO_DEADLINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def form_of(**changes: Any) -> dict[str, Any]:
    """Return a good record's form as an object that a test may spoil."""
    spoilt: dict[str, Any] = json.loads(entry_of(a_record(**{**FULL, **changes}), WRITER).canonical)
    return spoilt


def written(form: dict[str, Any]) -> bytes:
    return orjson.dumps(form, option=orjson.OPT_SORT_KEYS)


def taken(payload: bytes) -> Entry:
    [entry] = entries_of([payload], WRITER)
    return entry


def taken_or_refused(payload: bytes) -> Entry | None:
    try:
        return taken(payload)
    except MeshError as error:
        if error.reason is Reason.AUDIT_RECORD_INVALID:
            return None
        raise


def refusal(payload: bytes) -> MeshError:
    with pytest.raises(MeshError) as caught:
        entries_of([payload], WRITER)
    assert caught.value.reason is Reason.AUDIT_RECORD_INVALID
    return caught.value


words = {
    name: st.sampled_from([n for n in enum.values() if n < limit])
    for name, enum, limit in (
        ("event_class", record_pb.EventClass, record_pb.EVENT_CLASS_SHARD_OPENED),
        ("authorization", record_pb.AuthorizationOutcome, 99),
        ("status", record_pb.RecordStatus, 99),
        ("error_reason", error_reason_pb2.ErrorReason, 9999),
    )
}
callers = st.builds(
    caller_pb2.Caller,
    subject=TEXT,
    agent=TEXT,
    tenant=TEXT,
    session_id=TEXT,
    tier=st.sampled_from(caller_pb2.CredentialTier.values()),
    scopes=st.lists(TEXT, max_size=3),
    delegation_chain=st.lists(st.builds(caller_pb2.Actor, subject=TEXT, token_id=TEXT), max_size=3),
)
summaries = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(2**63, 10**21).map(float)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
).map(lambda value: json.dumps(value).encode())
records = st.fixed_dictionaries(
    {},
    optional={
        **{name: value for name, value in words.items() if name != "event_class"},
        **dict.fromkeys(("trace_id", "invocation_id", "tool_version", "state", "ticket", "decision", "task_id"), TEXT),
        **dict.fromkeys(("determining_policies", "side_effects"), st.lists(TEXT, max_size=3)),
        **dict.fromkeys(("arguments_summary", "result_summary"), summaries),
        "caller": callers,
        "attempt": st.integers(0, 2**31 - 1),
        "cost_micros": st.integers(-(2**63), 2**63 - 1),
        "replayed": st.booleans(),
        "latency": st.builds(Duration, seconds=st.integers(0, 10**6), nanos=st.integers(0, 999_999_999)),
        "event_time": st.builds(
            Timestamp, seconds=st.integers(-62135596800, 253402300799), nanos=st.integers(0, 999_999_999)
        ),
    },
)


@NO_DEADLINE
@given(changes=records, event_class=words["event_class"].filter(bool))
def test_canonical_bytes_are_accepted_unchanged(changes: dict[str, Any], event_class: int) -> None:
    expected = entry_of(a_record(event_class=event_class, **changes), WRITER)
    assert taken(expected.canonical) == expected


@NO_DEADLINE
@given(st.data())
def test_accepted_bytes_are_reproduced_from_the_decoded_record(data: st.DataObject) -> None:
    payload = bytearray(written(form_of()))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(payload) - 1))
        payload[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    if (entry := taken_or_refused(bytes(payload))) is not None:
        assert written(canonical_form(record_of(entry.canonical), WRITER)) == bytes(payload)


def test_every_character_that_text_can_hold_is_written_in_one_way() -> None:
    points = [*range(0x300), *range(0x2000, 0x2100), 0xD7FF, 0xE000, 0xFFFE, 0xFFFF, 0x10000, 0x1F600, 0x10FFFF]
    text = "".join(map(chr, points))
    changes = {"side_effects": [text], "caller": caller_pb2.Caller(subject=text)}
    expected = entry_of(a_record(**changes), WRITER)
    assert taken(expected.canonical) == expected


SPOILT: dict[str, tuple[str, dict[str, Any]]] = {
    "unknown field": ("", {"extra": 1}),
    "a field that the log writes": ("", {"erasure": {}}),
    "a class that the log writes": ("event_class", {"event_class": "shard_opened"}),
    "no class": ("event_class", {"event_class": ""}),
    "another writer": ("writer", {"writer": "gateway"}),
    "an empty text": ("", {"ticket": ""}),
    "an empty list": ("", {"side_effects": []}),
    "a zero": ("", {"attempt": 0}),
    "a negative attempt": ("attempt", {"attempt": -1}),
    "an attempt past 32 bits": ("attempt", {"attempt": 2**31}),
    "a fraction": ("attempt", {"attempt": 1.5}),
    "a number as text": ("attempt", {"attempt": "1"}),
    "an id with a line's end": ("record_id", {"record_id": "01900000-0000\n"}),
    "a latency past any duration": ("latency_us", {"latency_us": 315_576_000_000 * 10**6 + 1}),
    "a cost past 64 bits": ("cost_micros", {"cost_micros": 2**63}),
    "a text too long": ("trace_id", {"trace_id": "x" * 65}),
    "an id of other characters": ("record_id", {"record_id": "no spaces here"}),
    "too many policies": ("determining_policies", {"determining_policies": ["p"] * 65}),
    "a moment without fractions": ("event_time", {"event_time": "2026-11-15T08:00:00Z"}),
    "a moment of no calendar": ("event_time", {"event_time": "2026-13-15T08:00:00.000000Z"}),
    "a moment of another zone": ("event_time", {"event_time": "2026-11-15T08:00:00.000+01"}),
    "an unknown outcome": ("authorization", {"authorization": "maybe"}),
    "a reason without its name": ("error_reason", {"error_reason": "E3402"}),
    "a reason under another name": ("error_reason", {"error_reason": "E3402 SOMETHING_ELSE"}),
    "a reason that is no code": ("error_reason", {"error_reason": "boom"}),
    "a summary as text that holds too much": ("arguments_summary", {"arguments_summary": "x" * 16384}),
    "an unknown tier": ("caller.tier", {"caller": {"tier": "king"}}),
    "a caller with more fields": ("caller", {"caller": {"extra": 1}}),
}


@pytest.mark.parametrize(("path", "changes"), SPOILT.values(), ids=SPOILT)
def test_a_violation_of_the_contract_is_refused_with_its_path(path: str, changes: dict[str, Any]) -> None:
    [violation] = refusal(written({**form_of(), **changes})).violations
    assert violation.path == f"canonical_records[0].{path}".rstrip(".")


@pytest.mark.parametrize("missing", ["record_id", "event_class", "event_time", "writer"])
def test_a_record_without_a_required_field_is_refused(missing: str) -> None:
    form = form_of()
    del form[missing]
    refusal(written(form))


def _shuffled(form: dict[str, Any]) -> bytes:
    names = sorted(form, reverse=True)
    return orjson.dumps({name: form[name] for name in names})


def _twice(form: dict[str, Any]) -> bytes:
    return written(form).replace(b'"attempt":1', b'"attempt":2,"attempt":1')


DRESSED: dict[str, Any] = {
    "other order": _shuffled,
    "spaces": lambda form: json.dumps(form, sort_keys=True).encode(),
    "escapes that are not needed": lambda form: written(form).replace(b'"writer"', b'"\\u0077riter"'),
    "the same field twice": _twice,
    "something behind it": lambda form: written(form) + b" ",
    "two records": lambda form: written(form) * 2,
    "a list": lambda form: b"[" + written(form) + b"]",
    "not JSON": lambda form: b"record",
    "not UTF-8": lambda form: written(form).replace(b"p1", b"\xff\xfe"),
    "a lone surrogate": lambda form: written(form).replace(b"p1", b"\\ud800"),
    "a summary that is not canonical": lambda form: written(form).replace(b"[1,2.5,null]", b"[1,2.50,null]"),
    "a summary with a key twice": lambda form: written(form).replace(b'{"a":[1,2.5,null]}', b'{"a":1,"a":1}'),
    "a summary with a number past 64 bits": lambda form: written(form).replace(b"2.5", b"18446744073709551616"),
    "a summary that is too deep": lambda form: written(form).replace(b"[1,2.5,null]", b"[" * 70 + b"]" * 70),
    "a summary without a floor": lambda form: written(form).replace(b"[1,2.5,null]", b"[" * 8000),
}


@pytest.mark.parametrize("dress", DRESSED.values(), ids=DRESSED)
def test_bytes_that_are_not_canonical_are_refused(dress: Any) -> None:
    refusal(dress(form_of()))


def test_one_invalid_record_refuses_its_batch_and_names_its_index() -> None:
    batch = [written(form_of()) for _ in range(5)]
    batch[random.Random(7).randrange(1, 5)] = b"{}"
    with pytest.raises(MeshError) as caught:
        entries_of(batch, WRITER)
    [violation] = caught.value.violations
    assert violation.path.startswith(f"canonical_records[{batch.index(b'{}')}]")


def test_a_reason_newer_than_this_build_is_taken_by_its_number() -> None:
    assert taken(written({**form_of(), "error_reason": "E3999"}))


def test_forms_that_are_records_only_together_are_refused() -> None:
    whole = written(form_of())
    first, second = whole[: len(whole) // 2], whole[len(whole) // 2 :]
    for batch in ([first, second], [whole + b"\n" + whole], [whole, b"\n" + whole], [whole, b""], [b"", whole, whole]):
        with pytest.raises(MeshError) as caught:
            entries_of(batch, WRITER)
        assert caught.value.reason is Reason.AUDIT_RECORD_INVALID


@NO_DEADLINE
@given(st.lists(st.booleans(), min_size=1, max_size=6))
def test_a_batch_is_taken_as_its_records_would_be_alone(good: list[bool]) -> None:
    batch = [written(form_of()) if each else written(form_of()) + b" " for each in good]
    if all(good):
        assert entries_of(batch, WRITER) == [taken(payload) for payload in batch]
    else:
        with pytest.raises(MeshError) as caught:
            entries_of(batch, WRITER)
        assert caught.value.violations[0].path == f"canonical_records[{good.index(False)}]"


def test_every_published_number_is_accepted_in_a_summary() -> None:
    for number in es6_doubles(10_000):
        summary = canonical([number])
        assert taken(entry_of(a_record(result_summary=summary), WRITER).canonical)


@pytest.mark.parametrize("digits", [b"18446744073709551616", b"100000000000000000001", b"1000000000000000000000"])
def test_an_integer_that_no_double_is_written_as_is_refused_in_a_summary(digits: bytes) -> None:
    payload = entry_of(a_record(result_summary=b'"here"'), WRITER).canonical.replace(b'"here"', digits)
    assert [violation.path for violation in refusal(payload).violations] == ["canonical_records[0].result_summary"]
