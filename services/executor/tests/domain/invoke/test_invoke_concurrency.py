"""Calls that take turns and calls that hooks look at, through all six phases."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import SystemClock
from services.executor.domain import errors
from services.executor.domain.argument_spec import Change
from services.executor.domain.hooks.hooks import Hook, Phase
from services.executor.domain.invoke.invoke import Invoke
from services.executor.domain.model import Decision, Event, Obligation, Result, Verdict
from services.executor.domain.phases.pipeline import Pipeline
from services.executor.domain.scheduling.scheduler import Bounds, Scheduler
from services.executor.domain.scheduling.slots import SlotPool
from services.executor.domain.states import State
from services.executor.domain.tool import Placement, Tool, ToolTrust, VersionIdentity
from services.executor.tests.fakes import World, never_ends
from services.executor.tests.samples import a_caller, a_decision, a_request, a_tool
from services.executor.tests.waiting import until

SINGLE = Placement(concurrency_safe=True, max_concurrency=1)


class Scripted:
    """Answers what the test sets."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.seen = answer, 0

    async def ask(self, event: dict[str, Any], share: object) -> Any:
        self.seen += 1
        return self.answer


def world(tool: Tool, *hooks: tuple[Phase, Any], **bounds: Any) -> World:
    declared = [
        Hook(f"h{place}", phase, ("*",), 5.0, Scripted(answer), may_change_input=True)
        for place, (phase, answer) in enumerate(hooks)
    ]
    made, clock = World(tool, hooks=declared), SystemClock()
    turns = SlotPool(Scheduler(clock, Bounds(**bounds)), clock)
    made.pipeline = Pipeline(replace(made.ports, slots=turns), in_flight=made.in_flight, audit_wait=2.0)
    made.invoke = Invoke(made.pipeline)
    return made


def path(made: World, place: int = -1) -> list[State]:
    return list(made.watcher.seen.ended[place].history.steps)


async def one_behind_another(made: World, go: asyncio.Event, key: str = "") -> tuple[asyncio.Future[Result], ...]:
    """A call that runs until it may go on, and one that waits for its turn behind it."""

    async def behave(arguments: dict[str, Any]) -> Any:
        await go.wait()
        return {"said": arguments["text"]}

    made.runner.behave = behave
    first = asyncio.ensure_future(made.invoke.execute(a_request()))
    await made.runner.started.wait()
    second = asyncio.ensure_future(made.invoke.execute(a_request(idempotency_key=key)))
    await until(lambda: made.pipeline.ports.slots._scheduler.length == 1)
    return first, second


async def test_a_call_that_waits_for_its_turn_is_queued_and_then_runs() -> None:
    made, go = world(a_tool(placement=SINGLE)), asyncio.Event()
    first, second = await one_behind_another(made, go)
    assert len(made.runner.calls) == 1
    go.set()
    await asyncio.gather(first, second)
    assert State.QUEUED not in path(made, 0)
    assert path(made)[-4:] == [State.APPROVED, State.QUEUED, State.RUNNING, State.SUCCEEDED]


@pytest.mark.parametrize("key", ["", "k2"])
async def test_a_call_that_waits_for_its_turn_does_not_run_what_was_taken_out_of_use_meanwhile(key: str) -> None:
    made, go = world(a_tool(placement=SINGLE)), asyncio.Event()

    async def breaks_its_word(arguments: dict[str, Any]) -> Any:
        await go.wait()
        made.tools.failure = errors.tool_unavailable(
            VersionIdentity("tools/core.say/versions/1.0.0", "sha256:x"), "quarantined"
        )
        return {"said": arguments["text"]}

    made.runner.behave = breaks_its_word
    first = asyncio.ensure_future(made.invoke.execute(a_request()))
    await made.runner.started.wait()
    waits = asyncio.ensure_future(made.failure(a_request(idempotency_key=key)))
    await until(lambda: made.pipeline.ports.slots._scheduler.length == 1)
    go.set()
    await first
    error = await waits
    assert (error.reason, error.metadata["state"]) == (Reason.TOOL_UNAVAILABLE, "quarantined")
    assert path(made)[-2:] == [State.QUEUED, State.BLOCKED]
    assert made.trail.durable[-1].reason is Reason.TOOL_UNAVAILABLE
    assert len(made.runner.calls) == 1
    # It never ran, so its key is free for when the tool is back.
    made.tools.failure = None
    again = await made.invoke.execute(a_request(idempotency_key=key))
    assert not again.replayed


async def waited(made: World, answer: Decision) -> Result | MeshError:
    """What becomes of a call that waits for its turn while other policies are activated, which answer this."""
    go = asyncio.Event()
    first, second = await one_behind_another(made, go, "k2")
    made.policy.answer = answer
    made.policy.replaced.add("set-1")
    go.set()
    await first
    (ended,) = await asyncio.gather(second, return_exceptions=True)
    assert isinstance(ended, Result | MeshError)
    return ended


@pytest.mark.parametrize("verdict", [Verdict.DENY, Verdict.NEEDS_APPROVAL])
async def test_a_call_that_waits_for_its_turn_does_not_run_what_policy_forbids_by_then(verdict: Verdict) -> None:
    made = world(a_tool(placement=SINGLE))
    now = a_decision(verdict, policy_set_version="set-2")
    ended = await waited(made, now)
    assert isinstance(ended, MeshError)
    assert ended.reason in (now.deny_reason, Reason.APPROVAL_REQUIRED)
    assert path(made)[-2:] == [State.QUEUED, State.DENIED]
    assert made.trail.durable[-1].decision == now
    assert len(made.runner.calls) == 1
    # It never ran, so its key is free for when policy lets it.
    made.policy.answer = a_decision(policy_set_version="set-3")
    assert not (await made.invoke.execute(a_request(idempotency_key="k2"))).replayed


@pytest.mark.parametrize("change", [{"trust": ToolTrust(10)}, {"health": "unavailable"}])
async def test_a_call_that_waits_for_its_turn_is_decided_again_once_its_tool_is_trusted_less_or_cannot_work(
    change: dict[str, Any],
) -> None:
    tool = a_tool(placement=SINGLE, trust=ToolTrust(90), health="healthy")
    made = world(tool)
    go = asyncio.Event()
    first, second = await one_behind_another(made, go, "k2")
    made.tools.tools["say"] = replace(tool, **change)
    made.policy.answer = a_decision(Verdict.DENY)
    go.set()
    await first
    (ended,) = await asyncio.gather(second, return_exceptions=True)
    assert isinstance(ended, MeshError)
    assert path(made)[-2:] == [State.QUEUED, State.DENIED]
    assert len(made.runner.calls) == 1


async def test_a_call_that_waits_for_its_turn_is_bound_by_the_policies_that_are_asked_by_then() -> None:
    made = world(a_tool(placement=SINGLE))
    now = a_decision(policy_set_version="set-2", obligations=(Obligation("redact_fields", ("/said",)),))
    ended = await waited(made, now)
    assert isinstance(ended, Result)
    assert (ended.content, ended.changed) == (b"{}", ("/said",))
    # Both decisions are on record, the one that counts before it ran.
    records = [each for each in made.trail.durable if each.invocation_id == ended.invocation_id]
    assert [each.event for each in records][:2] == [Event.PERMISSION_DECIDED] * 2
    assert records[1].decision == records[-1].decision == now
    assert records[-1].follows == records[1].record_id


async def test_a_call_that_waits_for_its_turn_is_decided_about_once_where_policies_stay() -> None:
    made = world(a_tool(placement=SINGLE))
    made.policy.answer = a_decision(policy_set_version="set-2")
    ended = await waited(made, a_decision(Verdict.DENY, policy_set_version="set-3"))
    assert isinstance(ended, Result)
    assert len(made.policy.asked) == 2


async def test_a_call_for_which_there_is_no_room_is_blocked_on_record() -> None:
    made, go = world(a_tool(placement=SINGLE), waiting=1), asyncio.Event()

    async def behave(arguments: dict[str, Any]) -> Any:
        await go.wait()
        return {"said": arguments["text"]}

    made.runner.behave = behave
    calls = [asyncio.ensure_future(made.invoke.execute(a_request())) for _ in range(2)]
    await until(lambda: made.pipeline.ports.slots._scheduler.length == 1)
    error = await made.failure(a_request())
    assert (error.reason, path(made)[-1]) == (Reason.QUEUE_FULL, State.BLOCKED)
    assert made.trail.durable[-1].reason is Reason.QUEUE_FULL
    go.set()
    await asyncio.gather(*calls)


async def test_hooks_are_asked_in_their_phases_and_leave_their_traces() -> None:
    tool = a_tool(hooks_may_change=True, placement=Placement(concurrency_safe=True))
    made = world(tool, (Phase.PRE, {"input": {"text": "bye"}}), (Phase.POST, {"context": ["said"]}))
    result = await made.invoke.execute(a_request())
    assert (result.content, result.context) == (b'{"said":"bye"}', ("said",))
    assert Change("/text", "hook", "h0") in result.changes
    assert State.PRE_HOOKS_RUNNING in path(made)
    assert State.POST_HOOKS_RUNNING in path(made)
    assert [note.split()[:3] for note in made.trail.durable[-1].hooks] == [
        ["pre", "h0", "input"],
        ["post", "h1", "context"],
    ]


async def test_what_a_hook_makes_of_the_arguments_must_keep_the_contract() -> None:
    made = world(a_tool(hooks_may_change=True), (Phase.PRE, {"input": {"text": 7}}))
    error = await made.failure(a_request())
    assert (error.reason, path(made)[-1]) == (Reason.ARGUMENTS_INVALID, State.VALIDATION_FAILED)
    assert made.policy.asked == []


@pytest.mark.parametrize("phase", [Phase.PRE, Phase.POST])
async def test_a_hook_that_stops_a_call_ends_it_on_record(phase: Phase) -> None:
    made = world(a_tool(), (phase, {"stop": "no"}))
    error = await made.failure(a_request())
    assert (error.reason, error.message) == (Reason.HOOK_BLOCKED, "no")
    assert made.trail.durable[-1].reason is Reason.HOOK_BLOCKED
    assert path(made)[-1] is (State.BLOCKED if phase is Phase.PRE else State.FAILED)
    assert len(made.runner.calls) == (phase is Phase.POST)


@pytest.mark.parametrize(
    ("verdict", "reason"), [(Verdict.ALLOW, Reason.APPROVAL_REQUIRED), (Verdict.DENY, Reason.SCOPE_MISSING)]
)
async def test_a_hook_may_ask_for_a_person_and_never_softens_policy(verdict: Verdict, reason: Reason) -> None:
    made = world(a_tool(), (Phase.PRE, {"decision": "ask"}))
    made.policy.answer = a_decision(verdict)
    error = await made.failure(a_request())
    assert error.reason is reason
    assert made.runner.calls == []
    assert made.trail.durable[-1].event is Event.PERMISSION_DECIDED


async def test_a_result_that_is_used_again_is_looked_at_again() -> None:
    made = world(a_tool(cache_seconds=60.0), (Phase.POST, {"context": ["said"]}))
    first, again = await made.invoke.execute(a_request()), await made.invoke.execute(a_request())
    assert len(made.runner.calls) == 1
    assert (first.context, again.context) == (("said",), ("said",))


@pytest.mark.parametrize(
    ("ends", "reason"), [("deadline", Reason.DEADLINE_EXCEEDED), ("authority_ends", Reason.TOKEN_EXPIRED)]
)
async def test_waiting_for_anothers_run_ends_with_the_callers_time_and_with_its_token(
    ends: str, reason: Reason
) -> None:
    world = World(a_tool(cache_seconds=60.0))
    world.runner.behave = never_ends
    first = asyncio.ensure_future(world.invoke.execute(a_request(deadline=None)))
    await world.runner.started.wait()
    if ends == "deadline":
        request = a_request(deadline=time.monotonic() + 0.05)
    else:
        request = a_request(deadline=None, caller=a_caller(authority_ends=time.time() + 0.05))
    waiting = asyncio.ensure_future(world.failure(request))
    await until(waiting.done, 3)
    error = waiting.result()
    assert (error.reason, world.trail.durable[-1].reason) == (reason, reason)
    assert len(world.runner.calls) == 1
    first.cancel()
    await asyncio.wait([first])


async def test_a_failure_is_returned_and_recorded_with_what_was_added() -> None:
    made = world(a_tool(), (Phase.FAILURE, {"context": ["try less"]}))

    async def fail(arguments: dict[str, Any]) -> Any:
        raise MeshError(Reason.EXECUTION_FAILED)

    made.runner.behave = fail
    error = await made.failure(a_request())
    assert error.metadata == {"context.0": "try less"}
    assert [note.split()[:3] for note in made.trail.durable[-1].hooks] == [["failure", "h0", "context"]]


REJECTING = {"decision": "deny", "reason": "frozen until the release"}


@pytest.mark.parametrize(
    ("answer", "reason", "end"),
    [
        (None, Reason.APPROVAL_REQUIRED, State.AWAITING_APPROVAL),
        ({"decision": "continue"}, Reason.APPROVAL_REQUIRED, State.AWAITING_APPROVAL),
        (REJECTING, Reason.APPROVAL_REJECTED, State.DENIED),
        ({"decision": "allow"}, Reason.HOOK_BLOCKED, State.BLOCKED),
        ({"stop": "no"}, Reason.HOOK_BLOCKED, State.BLOCKED),
    ],
    ids=["silent", "continue", "deny", "cannot approve", "cannot stop"],
)
async def test_who_speaks_for_approvers_may_reject_and_never_approve(answer: Any, reason: Reason, end: State) -> None:
    made = world(a_tool(), (Phase.APPROVAL, answer))
    made.policy.answer = a_decision(Verdict.NEEDS_APPROVAL)
    error = await made.failure(a_request())
    assert error.reason is reason
    assert error.metadata["decision"] == made.policy.answer.name
    assert path(made)[-1] is end
    assert State.AWAITING_APPROVAL in path(made)
    assert made.runner.calls == []
    [record] = made.trail.durable
    assert (record.event, len(record.hooks)) == (Event.PERMISSION_DECIDED, 1)


@pytest.mark.parametrize("verdict", [Verdict.ALLOW, Verdict.DENY])
async def test_no_approval_is_claimed_where_none_is_needed(verdict: Verdict) -> None:
    made = world(a_tool(), (Phase.APPROVAL, REJECTING))
    made.policy.answer = a_decision(verdict)
    if verdict is Verdict.ALLOW:
        await made.invoke.execute(a_request())
    else:
        assert (await made.failure(a_request())).reason is not Reason.APPROVAL_REJECTED
    assert all(record.hooks == () for record in made.trail.durable)


async def test_a_hook_that_asks_for_a_person_may_meet_one_that_rejects() -> None:
    made = world(a_tool(), (Phase.PRE, {"decision": "ask"}), (Phase.APPROVAL, REJECTING))
    error = await made.failure(a_request())
    assert (error.reason, error.metadata["rejected_by"]) == (Reason.APPROVAL_REJECTED, "h1")
