"""Parsing of tool answers, which are untrusted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.errors import Reason
from services.executor.adapters.runners.worker.answer import MalformedAnswerError, parse_answer, printable
from services.executor.domain.tool import Effect


def read(**frame: Any) -> Any:
    return parse_answer({"id": "i", **frame}, "i", 1000)


def test_a_value_comes_with_its_notes() -> None:
    notes = {
        "effects": [["file:a", "create"]],
        "costs": [["tokens", 5]],
        "undo": {"name": "a"},
        "expects": [["it rains", False]],
        "impact": "much",
    }
    answer = read(value={"x": 1}, notes=notes)
    assert answer.value == {"x": 1}
    assert answer.effects == (Effect("file:a", "create", observed=False),)
    assert answer.costs == (("tokens", 5),)
    assert answer.undo == {"name": "a"}
    assert answer.expects == (("it rains", False),)
    assert answer.impact == "much"


@pytest.mark.parametrize(
    ("kind", "reason", "ends"),
    [
        ("failure", Reason.EXECUTION_FAILED, False),
        ("partial", Reason.PARTIAL_FAILURE, False),
        ("error", Reason.EXECUTION_FAILED, False),
        ("stream", Reason.STREAM_DISCARDED, False),
        ("result", Reason.RESULT_INVALID, False),
        ("size", Reason.RESULT_TOO_LARGE, False),
        ("memory", Reason.TOOL_OUT_OF_MEMORY, True),
    ],
)
def test_each_failure_kind_has_its_own_error(kind: str, reason: Reason, ends: bool) -> None:
    answer = read(failed={"kind": kind, "message": "said", "detail": "inside"}, notes={})
    assert answer.failure.reason is reason
    assert answer.ends_worker is ends


def test_the_message_of_an_exception_does_not_reach_the_caller() -> None:
    failure = read(failed={"kind": "error", "message": "KeyError", "detail": "secret"}).failure
    assert failure.metadata == {"exception": "KeyError"}
    assert "secret" not in str(failure)


@pytest.mark.parametrize(
    "frame",
    [
        {},
        {"id": "other", "value": 1},
        {"failed": 1},
        {"failed": {"kind": "surprise"}},
        {"failed": {"kind": "limit", "message": "patience"}},
        {"value": 1, "notes": []},
        {"value": 1, "notes": {"effects": "x"}},
        {"value": 1, "notes": {"effects": [["a", "explode"]]}},
        {"value": 1, "notes": {"effects": [["", "create"]]}},
        {"value": 1, "notes": {"effects": [["a", "create"]] * 1001}},
        {"value": 1, "notes": {"effects": [["a"]]}},
        {"value": 1, "notes": {"costs": [["a", -1]]}},
        {"value": 1, "notes": {"costs": [["a", True]]}},
        {"value": 1, "notes": {"costs": [["a", 2**60]]}},
        {"value": 1, "notes": {"expects": [["a", 1]]}},
        {"failed": {"kind": "failure"}, "notes": {"costs": [["a", -1]]}},
        {"value": 1, "notes": {"undo": {"all": "x" * 100_000}}},
    ],
)
def test_a_malformed_answer_is_refused(frame: dict[str, Any]) -> None:
    with pytest.raises(MalformedAnswerError):
        parse_answer({"id": "i", **frame}, "i", 1000)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(notes=JSON, failed=JSON)
def test_any_frame_is_parsed_or_refused(notes: Any, failed: Any) -> None:
    for frame in ({"value": 1, "notes": notes}, {"failed": failed, "notes": notes}, {"failed": {"kind": failed}}):
        try:
            parse_answer({"id": "i", **frame}, "i", 1000)
        except MalformedAnswerError:
            continue


def test_a_message_is_bounded_and_printable() -> None:
    assert printable("a\x1b[31mb\u202ec\n") == "a[31mbc"
    assert len(printable("x" * 10_000)) == 500


def test_a_failure_comes_with_what_was_reported_before_it() -> None:
    answer = read(failed={"kind": "failure"}, notes={"effects": [["order:1", "create"]], "costs": [["tokens", 5]]})
    assert (answer.effects, answer.costs) == ((Effect("order:1", "create"),), (("tokens", 5),))
