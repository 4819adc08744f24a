"""In which order the calls of a group may begin."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import dump
from services.executor.domain.invoke_group.plan import GroupCall, plan
from services.executor.domain.tool import Effect, Mutation, Placement, SiblingFailure, Tool
from services.executor.tests.fakes import KnownTools
from services.executor.tests.samples import a_request, a_tool


def tool(name: str, *, safe: bool = True, **changes: Any) -> Tool:
    placement = Placement(concurrency_safe=safe, **changes.pop("placement", {}))
    return a_tool(name=f"tools/core.{name}/versions/1.0.0", qualified=f"core.{name}", placement=placement, **changes)


TOOLS = KnownTools(
    tool("say"),
    tool("ask", safe=False),
    tool("tell", safe=False),
    tool("strict", placement={"sibling_failure": SiblingFailure.CANCEL_SIBLINGS}),
    tool("put", mutation=Mutation.WRITE_REVERSIBLE, effects=(Effect("order:{id}", "update"),)),
    tool("sweep", mutation=Mutation.WRITE_REVERSIBLE, effects=(Effect("order:*", "delete"),)),
)


def call(name: str, *depends_on: int, on_failure: SiblingFailure | None = None, **arguments: Any) -> GroupCall:
    return GroupCall(a_request(tool=name, arguments=dump(arguments)), depends_on, on_failure)


def after(*calls: GroupCall) -> list[tuple[int, ...]]:
    return [step.after for step in plan(calls, TOOLS)]


def test_calls_that_are_safe_begin_at_once() -> None:
    assert after(call("say"), call("say"), call("ask")) == [(), (), ()]


def test_calls_that_are_not_safe_follow_one_another_as_they_were_given() -> None:
    assert after(call("ask"), call("say"), call("tell"), call("ask")) == [(), (), (0,), (0, 2)]


def test_what_changes_the_same_thing_keeps_its_order_and_what_does_not_need_not() -> None:
    assert after(call("put", id=1), call("put", id=2), call("sweep"), call("put", id=1)) == [(), (), (0, 1), (0, 2)]


def test_a_dependency_comes_first_wherever_it_stands() -> None:
    assert after(call("ask", 1), call("tell"), call("say", 0)) == [(1,), (), (0,)]


def test_what_cannot_be_read_or_found_is_left_to_its_own_call() -> None:
    broken = GroupCall(a_request(tool="put", arguments=b"{"))
    assert after(broken, call("missing"), call("sweep")) == [(), (), (0,)]
    assert plan([call("missing")], TOOLS)[0].tool is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (call("strict"), SiblingFailure.CANCEL_SIBLINGS),
        (call("strict", on_failure=SiblingFailure.IGNORE), SiblingFailure.IGNORE),
        (call("say"), SiblingFailure.IGNORE),
        (call("missing"), SiblingFailure.IGNORE),
    ],
    ids=["the tool's", "its own", "unsaid", "unknown tool"],
)
def test_what_a_failure_does_is_the_calls_to_say_and_else_its_tools(given: GroupCall, expected: SiblingFailure) -> None:
    assert plan([given], TOOLS)[0].on_failure is expected


def test_everything_that_is_wrong_with_the_dependencies_is_said_at_once() -> None:
    calls = [call("say", 9, 1), call("say", 2), call("say", 1), call("say", 3), call("say", 1), call("say", -1)]
    with pytest.raises(MeshError) as caught:
        plan(calls, TOOLS)
    assert caught.value.reason is Reason.INVALID_REQUEST
    assert [(violation.path, violation.rule) for violation in caught.value.violations] == [
        ("calls[0].depends_on[0]", "depends_on.known"),
        ("calls[5].depends_on[0]", "depends_on.known"),
        ("calls[1].depends_on", "depends_on.acyclic"),
        ("calls[2].depends_on", "depends_on.acyclic"),
        ("calls[3].depends_on", "depends_on.acyclic"),
    ]


names = st.sampled_from(["say", "ask", "tell", "put", "sweep"])


@settings(deadline=None)
@given(st.lists(st.tuples(names, st.sets(st.integers(0, 7), max_size=3)), min_size=1, max_size=8))
def test_a_plan_can_always_be_followed_to_its_end(drawn: list[tuple[str, set[int]]]) -> None:
    calls = [call(name, *sorted(needed), id=1) for name, needed in drawn]
    try:
        steps = plan(calls, TOOLS)
    except MeshError:
        return
    over: set[int] = set()
    while len(over) < len(steps):
        begins = {place for place, step in enumerate(steps) if place not in over and over.issuperset(step.after)}
        assert begins
        over |= begins
    assert all(set(step.call.depends_on) <= set(step.after) for step in steps)
