"""What hooks may answer, phase by phase."""

from __future__ import annotations

from typing import Any

import pytest

from services.executor.domain.hooks.answers import (
    MAX_CONTEXT_LENGTH,
    MAX_CONTEXTS,
    MAX_REASON_LENGTH,
    MAX_RISKS,
    Answer,
    HookFailedError,
    parse_answer,
)


@pytest.mark.parametrize("phase", ["pre", "approval", "post", "failure"])
@pytest.mark.parametrize("nothing", [None, {}, {"decision": "continue"}, {"context": []}])
def test_nothing_to_say_means_that_the_call_goes_on(phase: str, nothing: Any) -> None:
    answer = parse_answer(nothing, phase)
    assert answer == Answer()
    assert (answer.stops, answer.said) == (False, "continue")


@pytest.mark.parametrize("phase", ["pre", "approval", "post", "failure"])
def test_context_may_be_added_in_every_phase(phase: str) -> None:
    answer = parse_answer({"context": ["one", "two"]}, phase)
    assert (answer.context, answer.said) == (("one", "two"), "context")


def test_before_a_call_a_hook_may_say_everything_at_once() -> None:
    answer = parse_answer({"context": ["c"], "input": {"a": 1}, "decision": "ask", "reason": "r"}, "pre")
    assert answer == Answer(("c",), {"a": 1}, asks_approval=True, reason="r")
    assert answer.said == "input+context+ask"


@pytest.mark.parametrize(
    ("given", "said", "reason"),
    [
        ({"stop": "too late"}, "stopped", "too late"),
        ({"stop": ""}, "stopped", ""),
        ({"decision": "deny", "reason": "no"}, "denied", "no"),
        ({"decision": "deny"}, "denied", ""),
    ],
)
def test_a_hook_may_stop_a_call(given: Any, said: str, reason: str) -> None:
    answer = parse_answer(given, "pre")
    assert (answer.stops, answer.said, answer.reason) == (True, said, reason)


def test_a_long_reason_is_cut() -> None:
    assert len(parse_answer({"stop": "x" * 10_000}, "post").reason) == MAX_REASON_LENGTH


@pytest.mark.parametrize(
    ("given", "phase"),
    [
        ("continue", "pre"),
        ([], "pre"),
        ({"decision": "allow"}, "pre"),
        ({"decision": ["deny"]}, "pre"),
        ({"decision": None}, "pre"),
        ({"verdict": "deny"}, "pre"),
        ({"input": [1]}, "pre"),
        ({"input": None}, "pre"),
        ({"stop": True}, "pre"),
        ({"stop": None}, "pre"),
        ({"reason": 1}, "pre"),
        ({"context": "text"}, "pre"),
        ({"context": [1]}, "pre"),
        ({"context": [""]}, "pre"),
        ({"context": ["x"] * (MAX_CONTEXTS + 1)}, "pre"),
        ({"context": ["x" * (MAX_CONTEXT_LENGTH + 1)]}, "pre"),
        ({"input": {}}, "post"),
        ({"result": {}}, "post"),
        ({"decision": "deny"}, "post"),
        ({"decision": "ask"}, "post"),
        ({"stop": "no"}, "failure"),
        ({"stop": "no"}, "approval"),
        ({"input": {}}, "approval"),
        ({"decision": "ask"}, "approval"),
        ({"input": {}}, "failure"),
    ],
)
def test_whatever_cannot_be_followed_is_no_answer(given: Any, phase: str) -> None:
    with pytest.raises(HookFailedError) as caught:
        parse_answer(given, phase)
    assert caught.value.kind == "answer_invalid"


def test_before_a_call_a_hook_may_tell_of_risks() -> None:
    answer = parse_answer({"risk": {"score": 80, "low": -(2**63)}}, "pre")
    assert (answer.risk, answer.said) == ((("score", 80), ("low", -(2**63))), "risk")


@pytest.mark.parametrize(
    "risk",
    [
        7,
        {"Score": 1},
        {"": 1},
        {"a\n": 1},
        {"a": True},
        {"a": 1.5},
        {"a": "1"},
        {"a": 2**63},
        {"a" * 65: 1},
        {f"r{n}": n for n in range(MAX_RISKS + 1)},
    ],
)
def test_a_risk_that_policy_cannot_be_told_is_no_answer(risk: Any) -> None:
    with pytest.raises(HookFailedError):
        parse_answer({"risk": risk}, "pre")


@pytest.mark.parametrize("phase", ["approval", "post", "failure"])
def test_risk_facts_reach_policy_before_its_decision_or_not_at_all(phase: str) -> None:
    with pytest.raises(HookFailedError):
        parse_answer({"risk": {"score": 1}}, phase)
