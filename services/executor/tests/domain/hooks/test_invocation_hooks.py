"""Hooks leave their traces on the invocation that they are asked about."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.redaction.tenant_scanners import TenantScanners
from libs.common.runtime.clock import SystemClock
from libs.common.testing.clock import ManualClock
from services.executor.domain import errors
from services.executor.domain.argument_spec import Change
from services.executor.domain.hooks.answers import HookFailedError
from services.executor.domain.hooks.hooks import Hook, Hooks, Phase
from services.executor.domain.hooks.invocation_hooks import MAX_ADDED, MAX_ADDED_LENGTH, InvocationHooks
from services.executor.domain.invocation import Invocation
from services.executor.domain.scheduling.heavy_work import WorkShare
from services.executor.domain.states import State
from services.executor.tests.samples import a_request, a_tool

TOOL = a_tool(hooks_may_change=True)


class Scripted:
    """Answers what the test sets."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.seen: list[dict[str, Any]] = []

    async def ask(self, event: dict[str, Any], share: WorkShare) -> Any:
        self.seen.append(event)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Silent:
    """Never answers."""

    async def ask(self, event: dict[str, Any], share: WorkShare) -> Any:
        await asyncio.Event().wait()


def hooking(phase: Phase, *answers: Any) -> InvocationHooks:
    declared = [
        Hook(f"h{place}", phase, ("*",), 5.0, Scripted(answer), may_change_input=True)
        for place, answer in enumerate(answers)
    ]
    return InvocationHooks(Hooks(declared, ManualClock()), TenantScanners())


def invocation(*states: State, **changes: Any) -> Invocation:
    made = Invocation(a_request(**changes), SystemClock(), None)
    made.tool, made.arguments = TOOL, {"text": "hello"}
    made.changes = (Change("/text", "coercion"),)
    for state in states:
        made.enter(state)
    return made


READY = (State.SELECTED, State.ARGUMENTS_READY)
RUNNING = (*READY, State.APPROVED, State.RUNNING)


async def test_without_a_hook_for_it_an_invocation_enters_no_state_of_theirs() -> None:
    quiet = hooking(Phase.PRE)
    assert not quiet.active
    made = invocation(*READY)
    await quiet.before(made, TOOL)
    assert made.state is State.ARGUMENTS_READY
    made = invocation(*RUNNING)
    await quiet.after(made, TOOL, {})
    await quiet.after_failure(made, errors.canceled())
    assert (made.state, made.hooks) == (State.RUNNING, ())


async def test_what_hooks_change_before_a_call_is_on_it_with_their_names() -> None:
    made = invocation(*READY)
    asking = hooking(Phase.PRE, {"context": ["c"], "decision": "ask"}, {"input": {"text": "bye"}})
    assert asking.active
    verdicts = await asking.before(made, TOOL)
    assert (made.state, made.arguments) == (State.PRE_HOOKS_RUNNING, {"text": "bye"})
    assert made.changes == (Change("/text", "coercion"), Change("/text", "hook", "h1"))
    assert (made.context, verdicts.asks_approval) == (("c",), "h0")
    assert made.hooks == ("pre h0 context+ask 0ms", "pre h1 input 0ms")
    assert verdicts.arguments is made.arguments


async def test_a_call_that_a_hook_stops_ends_there_with_all_notes() -> None:
    made = invocation(*READY)
    with pytest.raises(MeshError) as caught:
        await hooking(Phase.PRE, {"context": ["c"]}, {"stop": "no"}).before(made, TOOL)
    assert caught.value.reason is Reason.HOOK_BLOCKED
    assert (made.context, made.hooks) == (("c",), ("pre h0 context 0ms", "pre h1 stopped 0ms"))
    assert made.arguments == {"text": "hello"}


async def test_notes_stay_when_the_time_of_the_call_ends_while_hooks_are_asked() -> None:
    made = invocation(*READY, deadline=SystemClock().monotonic() + 0.05)
    declared = [
        Hook("quick", Phase.PRE, ("*",), 5.0, Scripted({"input": {"text": "bye"}}), may_change_input=True),
        Hook("silent", Phase.PRE, ("*",), 5.0, Silent()),
    ]
    with pytest.raises(MeshError) as caught:
        await InvocationHooks(Hooks(declared, SystemClock()), TenantScanners()).before(made, TOOL)
    assert caught.value.reason is Reason.DEADLINE_EXCEEDED
    assert [note.split()[1:3] for note in made.hooks] == [["quick", "input"], ["silent", "interrupted"]]
    assert made.arguments == {"text": "hello"}


async def test_a_result_may_be_withheld() -> None:
    made = invocation(*RUNNING)
    with pytest.raises(MeshError) as caught:
        await hooking(Phase.POST, {"context": ["c"]}, HookFailedError("status")).after(made, TOOL, {"said": "x"})
    assert caught.value.metadata == {"hook": "h1", "cause": "status"}
    assert (made.state, made.context) == (State.POST_HOOKS_RUNNING, ("c",))
    assert made.hooks == ("post h0 context 0ms", "post h1 failed:status:closed 0ms")


async def test_what_hooks_add_to_a_failure_travels_with_it() -> None:
    made, error = invocation(*RUNNING), errors.execution_failed("broken")
    await hooking(Phase.FAILURE, {"context": ["a", "b"]}, HookFailedError("status")).after_failure(made, error)
    assert error.metadata == {"context.0": "a", "context.1": "b"}
    assert len(made.hooks) == 2
    assert made.state is State.RUNNING


async def test_what_hooks_add_to_a_failure_fits_into_an_error() -> None:
    made, error = invocation(*RUNNING), errors.execution_failed("broken")
    await hooking(Phase.FAILURE, {"context": ["x" * 4000] * 16}).after_failure(made, error)
    assert len(error.metadata) == MAX_ADDED
    assert {len(text) for text in error.metadata.values()} == {MAX_ADDED_LENGTH}


async def test_an_invocation_without_a_tool_has_no_hooks() -> None:
    made = invocation()
    made.tool = None
    await hooking(Phase.FAILURE, {"context": ["a"]}).after_failure(made, errors.tool_not_found("x"))
    assert made.hooks == ()
