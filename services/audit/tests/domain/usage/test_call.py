"""Which records end a call, and with which outcome."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from toolmesh.audit.v1 import audit_record_pb2 as record_pb

from services.audit.domain.usage.call import COMPLETED, DecodedRecord, Outcome, call_of
from services.audit.domain.usage.sketch import MAX_MICROSECONDS
from services.audit.tests.usage_sample import NOON, a_form, decoded_records

ENDINGS = [
    ("invocation_succeeded", {}, Outcome.SUCCEEDED),
    ("invocation_failed", {}, Outcome.FAILED),
    ("invocation_timed_out", {"status": "timeout"}, Outcome.TIMED_OUT),
    ("invocation_canceled", {}, Outcome.CANCELED),
    ("invocation_validation_failed", {"attempt": 0}, Outcome.NOT_STARTED),
    ("invocation_failed", {"attempt": 0}, Outcome.NOT_STARTED),
    ("invocation_timed_out", {"attempt": 0}, Outcome.NOT_STARTED),
    ("invocation_canceled", {"attempt": 0}, Outcome.NOT_STARTED),
    ("permission_decided", {"attempt": 0}, Outcome.REFUSED),
    ("invocation_failed", {"state": "denied", "attempt": 0}, Outcome.REFUSED),
    ("invocation_succeeded", {"replayed": True, "attempt": 0}, Outcome.REPLAYED),
    ("invocation_failed", {"replayed": True, "attempt": 0}, Outcome.REPLAYED),
]


def only(form: dict[str, Any]) -> Any:
    [record] = decoded_records(form)
    return call_of(record)


@pytest.mark.parametrize(("event", "changes", "outcome"), ENDINGS)
def test_each_ending_has_one_outcome(event: str, changes: dict[str, Any], outcome: Outcome) -> None:
    assert only(a_form(event, **changes)).outcome is outcome


@pytest.mark.parametrize("name", record_pb.EventClass.keys())
def test_steps_that_end_nothing_are_no_calls(name: str) -> None:
    event = name.removeprefix("EVENT_CLASS_").lower()
    ends = {event for event, _, _ in ENDINGS} - {"permission_decided"}
    form = a_form(event)
    form.pop("status", None)
    assert (only(form) is not None) == (event in ends)


def test_a_payload_that_was_erased_is_no_call() -> None:
    assert call_of(DecodedRecord(0, None, NOON)) is None


def test_only_completed_calls_are_timed() -> None:
    timed = {outcome for event, changes, outcome in ENDINGS if only(a_form(event, **changes)).latency_us is not None}  # type: ignore[arg-type]
    assert timed == {Outcome.SUCCEEDED, Outcome.FAILED, Outcome.TIMED_OUT}


@pytest.mark.parametrize(("text", "counted"), [(None, None), (-5, 0), (0, 0), (17, 17), (2**80, MAX_MICROSECONDS)])
def test_a_latency_is_taken_within_its_bounds(text: int | None, counted: int | None) -> None:
    form = a_form()
    form.pop("latency_us")
    assert only(form if text is None else {**form, "latency_us": text}).latency_us == counted


@pytest.mark.parametrize("attempt", [0, 1])
@pytest.mark.parametrize(
    "reason", ["E3416 SANDBOX_NOT_READY", "E3405 SANDBOX_UNAVAILABLE", "E3001 SERVICE_UNAVAILABLE"]
)
def test_a_failure_of_the_mesh_is_not_counted_against_the_tool(reason: str, attempt: int) -> None:
    call = only(a_form("invocation_failed", error_reason=reason, attempt=attempt))
    assert call.outcome not in COMPLETED
    assert call.latency_us is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [("E3402 TOOL_TIMEOUT", 3402), ("E9999", 9999), ("", 0), ("strange", 0), ("E\u00b2", 0), ("E\u0663", 0)],
)
def test_the_reason_is_its_number(text: str, reason: int) -> None:
    assert only(a_form("invocation_failed", error_reason=text)).reason == reason


def test_a_replay_has_no_reason_of_its_own() -> None:
    assert only(a_form("invocation_failed", replayed=True, error_reason="E3401 EXECUTION_FAILED")).reason == 0


@pytest.mark.parametrize("name", ["nosuch", "echo@^9", "", "tools/x", "tools/core.echo/versions/"])
def test_unknown_tools_are_counted_as_one_unnamed_tool(name: str) -> None:
    call = only(a_form("invocation_failed", tool_version=name, attempt=0))
    assert (call.tool, call.version) == ("", "")


def test_a_version_name_without_a_digest_is_an_unknown_tool() -> None:
    """A caller may ask for any text; only an existing tool has a digest."""
    form = a_form("invocation_failed", tool_version="tools/any.thing/versions/1.0.0", attempt=0)
    form.pop("tool_digest")
    call = only(form)
    assert (call.tool, call.version) == ("", "")


def test_a_call_is_never_later_than_its_record_in_the_log() -> None:
    form = a_form(at=NOON + timedelta(days=4000))
    assert call_of(DecodedRecord(0, form, NOON)).event_time == NOON  # type: ignore[arg-type, union-attr]
    assert only(a_form(at=NOON)).event_time == NOON


def test_a_record_without_caller_or_task_is_still_a_call() -> None:
    form = a_form()
    form.pop("caller")
    call = only(form)
    assert (call.subject, call.tenant, call.task) == ("", "", "")


def test_texts_that_the_database_cannot_hold_are_made_to_fit() -> None:
    call = only(a_form(subject="a\0b" + "c" * 2000))
    assert "\0" not in call.subject
    assert len(call.subject) <= 512
