"""Hooks around a call: what they see, what they may do, and what becomes of the call when they fail."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import patch

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.redaction.scanner import Scanner
from libs.common.runtime.clock import SystemClock
from libs.common.testing.clock import ManualClock
from services.executor.domain import errors
from services.executor.domain.argument_spec import Change
from services.executor.domain.hooks.answers import HookFailedError
from services.executor.domain.hooks.hooks import NOTHING, Facts, Hook, Hooks, Phase
from services.executor.domain.scheduling.heavy_work import WorkShare
from services.executor.domain.tool import Tool
from services.executor.tests.fakes import World
from services.executor.tests.samples import a_caller, a_request, a_tool

WILLING = a_tool(hooks_may_change=True)


class Scripted:
    """Answers what the test sets, and remembers its input."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.seen: list[dict[str, Any]] = []

    async def ask(self, event: dict[str, Any], share: WorkShare) -> Any:
        self.seen.append(event)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer(event) if callable(self.answer) else self.answer


class Silent:
    """Never answers."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.left = False

    async def ask(self, event: dict[str, Any], share: WorkShare) -> Any:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.left = True


def hook(respondent: Any, name: str = "guard", phase: Phase = Phase.PRE, **changes: Any) -> Hook:
    fields = {"tools": ("*",), "timeout": 5.0, "may_change_input": True, **changes}
    return Hook(name=name, phase=phase, respondent=respondent, **fields)


def facts(tool: Tool = WILLING) -> Facts:
    return Facts("inv-1", tool, a_caller(tenant="acme"), Scanner(), trace_id="t1")


def answers(*given: Any) -> list[Scripted]:
    return [Scripted(answer) for answer in given]


def hooks(*declared: Hook) -> Hooks:
    return Hooks(declared, ManualClock())


ARGUMENTS = {"text": "hello", "secret": "s3"}


async def test_without_hooks_nothing_is_asked() -> None:
    none = hooks()
    assert not none.active
    assert none.matching(WILLING, Phase.PRE) == ()
    assert await none.before(facts(), ARGUMENTS) is NOTHING


def test_hooks_are_found_by_tool_and_phase_in_the_order_of_their_declaration() -> None:
    first, second = hook(Scripted(), "first", tools=("shop.*", "core.s*")), hook(Scripted(), "second")
    other, post = hook(Scripted(), "other", tools=("shop.*",)), hook(Scripted(), "post", Phase.POST)
    all_of_them = hooks(first, post, other, second)
    assert all_of_them.active
    assert all_of_them.matching(WILLING, Phase.PRE) == (first, second)
    assert all_of_them.matching(WILLING, Phase.POST) == (post,)
    assert all_of_them.matching(WILLING, Phase.FAILURE) == ()
    assert all_of_them.matching(WILLING, Phase.PRE) is all_of_them.matching(WILLING, Phase.PRE)


async def test_a_hook_sees_who_calls_what_with_what_and_no_secret() -> None:
    [guard] = answers({})
    await hooks(hook(guard)).before(facts(), ARGUMENTS)
    [event] = guard.seen
    assert event == {
        "phase": "pre",
        "hook": "guard",
        "invocation_id": "inv-1",
        "trace_id": "t1",
        "preview": False,
        "tool": {
            "name": "core.say",
            "version": "tools/core.say/versions/1.0.0",
            "digest": WILLING.digest,
            "mutation": "read_only",
        },
        "caller": {
            "subject": a_caller().subject,
            "agent": "",
            "tenant": "acme",
            "session_id": "session-1",
        },
        "input": {"text": "hello", "secret": "[redacted:declared]"},
    }
    assert a_caller().token_id not in str(event)


async def test_only_a_hook_that_is_declared_to_need_them_sees_secrets() -> None:
    [guard] = answers({})
    await hooks(hook(guard, sees_sensitive=True)).before(facts(), ARGUMENTS)
    assert guard.seen[0]["input"] == ARGUMENTS


async def test_each_hook_sees_what_the_one_before_it_left_and_every_change_has_its_source() -> None:
    first, second = answers(
        {"input": {"text": "one", "secret": "[redacted:declared]"}},
        lambda event: {"input": {**event["input"], "count": 2}, "context": ["counted"]},
    )
    said = facts()
    verdicts = await hooks(hook(first, "first"), hook(second, "second")).before(said, ARGUMENTS)
    assert second.seen[0]["input"] == {"text": "one", "secret": "[redacted:declared]"}
    assert verdicts.arguments == {"text": "one", "secret": "s3", "count": 2}
    assert verdicts.changes == (Change("/text", "hook", "first"), Change("/count", "hook", "second"))
    assert verdicts.context == ("counted",)
    assert ARGUMENTS == {"text": "hello", "secret": "s3"}
    assert said.notes == ["pre first input 0ms", "pre second input+context 0ms"]


async def test_an_input_that_is_the_same_is_no_change() -> None:
    [guard] = answers(lambda event: {"input": event["input"]})
    verdicts = await hooks(hook(guard)).before(facts(), ARGUMENTS)
    assert (verdicts.arguments, verdicts.changes) == (None, ())


@pytest.mark.parametrize(
    ("tool", "may"), [(a_tool(), True), (WILLING, False)], ids=["the manifest does not", "the hook may not"]
)
async def test_arguments_change_only_if_hook_and_manifest_allow_it(tool: Tool, may: bool) -> None:
    [guard] = answers({"input": {"text": "mine"}})
    said = facts(tool)
    verdicts = await hooks(hook(guard, may_change_input=may)).before(said, ARGUMENTS)
    assert verdicts.stop is not None
    assert verdicts.stop.metadata == {"hook": "guard", "cause": "input_not_allowed"}
    assert verdicts.arguments is None
    assert said.notes == ["pre guard failed:input_not_allowed:closed 0ms"]


@pytest.mark.parametrize(
    ("answer", "cause"), [({"stop": "not now"}, "stopped"), ({"decision": "deny", "reason": "not now"}, "denied")]
)
async def test_a_hook_that_stops_a_call_is_the_last_to_be_asked(answer: Any, cause: str) -> None:
    first, second, third = answers({"context": ["c"]}, answer, {})
    verdicts = await hooks(
        *(hook(each, name) for each, name in zip((first, second, third), "abc", strict=True))
    ).before(facts(), ARGUMENTS)
    assert verdicts.stop is not None
    assert (verdicts.stop.reason, verdicts.stop.message) == (Reason.HOOK_BLOCKED, "not now")
    assert verdicts.stop.metadata == {"hook": "b", "cause": cause}
    assert verdicts.context == ("c",)
    assert third.seen == []


async def test_a_hook_may_ask_for_a_person_and_others_are_asked_all_the_same() -> None:
    first, second = answers({"decision": "ask"}, {"decision": "ask"})
    verdicts = await hooks(hook(first, "first"), hook(second, "second")).before(facts(), ARGUMENTS)
    assert (verdicts.asks_approval, verdicts.stop, len(second.seen)) == ("first", None, 1)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [(HookFailedError("unreachable"), "unreachable"), ({"decision": "allow"}, "answer_invalid"), (7, "answer_invalid")],
)
async def test_a_hook_that_fails_closed_ends_the_call(answer: Any, kind: str) -> None:
    failing, following = answers(answer, {})
    said = facts()
    verdicts = await hooks(hook(failing), hook(following, "next")).before(said, ARGUMENTS)
    assert verdicts.stop is not None
    assert verdicts.stop.reason is Reason.HOOK_BLOCKED
    assert verdicts.stop.metadata == {"hook": "guard", "cause": kind}
    assert said.notes == [f"pre guard failed:{kind}:closed 0ms"]
    assert following.seen == []


async def test_a_hook_that_fails_open_is_noted_and_the_call_goes_on() -> None:
    failing, following = answers(HookFailedError("status"), {"context": ["c"]})
    said = facts()
    verdicts = await hooks(hook(failing, fails_open=True), hook(following, "next")).before(said, ARGUMENTS)
    assert (verdicts.stop, verdicts.context) == (None, ("c",))
    assert said.notes == ["pre guard failed:status:open 0ms", "pre next context 0ms"]


@pytest.mark.parametrize(("opens", "stopped"), [(True, False), (False, True)])
async def test_a_hook_that_takes_too_long_has_failed(opens: bool, stopped: bool) -> None:
    silent = Silent()
    verdicts = await Hooks([hook(silent, timeout=0.01, fails_open=opens)], SystemClock()).before(facts(), ARGUMENTS)
    assert (verdicts.stop is not None) is stopped
    assert silent.left
    if verdicts.stop is not None:
        assert verdicts.stop.metadata["cause"] == "timeout"


@pytest.mark.parametrize("opens", [True, False])
async def test_the_end_of_the_calls_own_time_is_no_failure_of_the_hook(opens: bool) -> None:
    clock, silent, said = SystemClock(), Silent(), facts()
    with pytest.raises(MeshError) as caught:
        await Hooks([hook(silent, fails_open=opens)], clock).before(said, ARGUMENTS, until=clock.monotonic() + 0.2)
    assert caught.value.reason is Reason.DEADLINE_EXCEEDED
    assert silent.left
    assert said.notes[0].startswith("pre guard interrupted ")


async def test_no_hook_is_asked_when_no_time_is_left() -> None:
    [guard] = answers({})
    with pytest.raises(MeshError) as caught:
        await hooks(hook(guard)).before(facts(), ARGUMENTS, until=0.0)
    assert (caught.value.reason, guard.seen) == (Reason.DEADLINE_EXCEEDED, [])


async def test_a_caller_that_leaves_takes_the_hook_with_it() -> None:
    silent, said = Silent(), facts()
    task = asyncio.ensure_future(hooks(hook(silent)).before(said, ARGUMENTS))
    await silent.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (silent.left, said.notes) == (True, ["pre guard interrupted 0ms"])


async def test_after_a_call_hooks_see_the_result_and_may_withhold_it() -> None:
    adds, stops, never = answers({"context": ["c"]}, {"stop": "leaks"}, {})
    declared = [hook(each, name, Phase.POST) for each, name in ((adds, "adds"), (stops, "stops"), (never, "never"))]
    said = facts()
    verdicts = await hooks(*declared).after(said, ARGUMENTS, {"said": "ada@example.com"})
    assert adds.seen[0]["result"] == {"said": "[redacted:email]"}
    assert adds.seen[0]["input"] == {"text": "hello", "secret": "[redacted:declared]"}
    assert verdicts.context == ("c",)
    assert verdicts.stop is not None
    assert verdicts.stop.metadata == {"hook": "stops", "cause": "stopped"}
    assert (never.seen, said.notes) == ([], ["post adds context 0ms", "post stops stopped 0ms"])


@pytest.mark.parametrize("answer", [{"input": {}}, {"result": {"said": "other"}}])
async def test_after_a_call_nothing_can_be_changed(answer: Any) -> None:
    verdicts = await hooks(hook(Scripted(answer), phase=Phase.POST)).after(facts(), ARGUMENTS, {"said": "x"})
    assert verdicts.stop is not None
    assert (verdicts.arguments, verdicts.stop.metadata["cause"]) == (None, "answer_invalid")


async def test_failure_hooks_may_add_context_and_nothing_else() -> None:
    failing, stopping, adding = answers(HookFailedError("status"), {"stop": "x"}, {"context": ["try again"]})
    declared = [hook(each, name, Phase.FAILURE) for each, name in zip((failing, stopping, adding), "abc", strict=True)]
    said = facts()
    verdicts = await hooks(*declared).after_failure(said, ARGUMENTS, errors.execution_failed("broken"))
    assert (verdicts.stop, verdicts.context) == (None, ("try again",))
    assert adding.seen[0]["error"] == {"code": "E3401", "reason": "EXECUTION_FAILED", "message": "broken"}
    assert adding.seen[0]["input"] == {"text": "hello", "secret": "[redacted:declared]"}
    assert [note.split()[2] for note in said.notes] == [
        "failed:status:closed",
        "failed:answer_invalid:closed",
        "context",
    ]


@pytest.mark.parametrize("trusted", [False, True])
async def test_a_failure_message_hides_what_the_input_hides(trusted: bool) -> None:
    said = "no account of jane@example.com, password opensesame"
    given, listens = {"text": "hello", "secret": "opensesame"}, Scripted()
    declared = hook(listens, phase=Phase.FAILURE, sees_sensitive=trusted)
    await hooks(declared).after_failure(facts(), given, errors.execution_failed(said))
    told = listens.seen[0]["error"]["message"]
    assert ("jane@example.com" in told, "opensesame" in told) == (trusted, trusted)
    assert told.startswith("no account of ")


async def test_a_failure_stays_what_it_is_when_there_is_no_time_to_tell_of_it() -> None:
    [never] = answers({})
    verdicts = await hooks(hook(never, phase=Phase.FAILURE)).after_failure(
        facts(), ARGUMENTS, errors.canceled(), until=0.0
    )
    assert (verdicts, never.seen) == (NOTHING, [])


def test_what_is_remembered_about_tools_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.executor.domain.hooks.hooks._MAX_REMEMBERED", 2)
    all_of_them = hooks(hook(Scripted()))
    for number in range(5):
        assert len(all_of_them.matching(a_tool(qualified=f"core.t{number}"), Phase.PRE)) == 1
    assert len(all_of_them._matching) <= 2


async def test_of_one_risk_the_highest_word_counts() -> None:
    told = answers({"risk": {"score": 80, "age": 3}}, {"risk": {"score": 5}}, {"risk": {"score": 7, "new": -1}})
    asked = hooks(*(hook(each, f"h{place}") for place, each in enumerate(told)))
    verdicts = await asked.before(facts(), ARGUMENTS)
    assert dict(verdicts.risk) == {"score": 80, "age": 3, "new": -1}


async def test_more_risks_than_policy_can_be_told_stop_the_call() -> None:
    told = answers({"risk": {f"a{n}": n for n in range(20)}}, {"risk": {f"b{n}": n for n in range(20)}})
    verdicts = await hooks(*(hook(each, f"h{place}") for place, each in enumerate(told))).before(facts(), ARGUMENTS)
    assert verdicts.stop is not None
    assert verdicts.stop.reason is Reason.HOOK_BLOCKED


async def test_policy_gets_the_risk_facts_of_hooks() -> None:
    world = World(WILLING, hooks=[hook(Scripted({"risk": {"score": 80}}))])
    with patch.object(world.policy, "decide", wraps=world.policy.decide) as decide:
        await world.invoke.execute(a_request())
    assert [each.args[2].risk for each in decide.call_args_list] == [(("score", 80),)]
