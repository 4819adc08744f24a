"""One call through its six phases: what succeeds, what is refused, and what evidence each leaves."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.json.canonical import digest
from libs.common.json.jsonio import parse
from libs.common.testing.clock import ManualClock
from services.executor.domain import errors
from services.executor.domain.argument_spec import Change
from services.executor.domain.model import Event, Obligation, PayloadDigest, Source, Status, Verdict
from services.executor.domain.run import RunResult
from services.executor.domain.states import State
from services.executor.domain.tool import Deprecation, Effect
from services.executor.tests.fakes import World
from services.executor.tests.samples import a_caller, a_decision, a_request, a_tool, a_write_tool


async def test_a_call_runs_after_its_decision_and_answers_after_its_outcome_is_durable() -> None:
    world = World()
    result = await world.invoke.execute(a_request())
    assert world.trail.steps == ["durable PERMISSION_DECIDED", "ran", "durable INVOCATION_SUCCEEDED"]
    assert parse(result.content) == {"said": "hello"}


async def test_a_result_says_where_it_comes_from_and_what_it_took() -> None:
    deprecation = Deprecation(datetime(2027, 1, 1, tzinfo=UTC), "tools/core.say/versions/2.0.0", "")
    world = World(a_tool(deprecation=deprecation))
    result = await world.invoke.execute(a_request())
    assert (result.tool_version, result.source) == ("tools/core.say/versions/1.0.0", Source.COMPUTED)
    assert [name for name, _ in result.phases] == ["request", "validate", "authorize", "execute", "verify", "return"]
    assert sum(taken for _, taken in result.phases) <= result.total
    assert result.trace_id == a_request().trace_id
    assert result.evidence == tuple(f"records/{record.record_id}" for record in world.trail.durable)
    assert result.policies == ("policy0",)
    assert result.changes == (Change("/count", "default", "schema"),)
    assert (result.deprecation, result.attempts, result.sandbox) == (deprecation, 1, "in_process")


async def test_both_records_tell_the_whole_story() -> None:
    world = World()
    await world.invoke.execute(a_request(arguments=b'{"text":"hi","secret":"s3"}', task_id="t1"))
    decided, ended = world.trail.durable
    assert (decided.event, decided.status) == (Event.PERMISSION_DECIDED, Status.BEGUN)
    assert (decided.previous_state, decided.state) == (State.ARGUMENTS_READY, State.APPROVED)
    assert (ended.event, ended.status, ended.reason) == (Event.SUCCEEDED, Status.SUCCESS, None)
    assert (ended.previous_state, ended.state) == (State.RUNNING, State.SUCCEEDED)
    assert ended.follows == decided.record_id
    assert ended.decision == world.policy.answer
    for record in (decided, ended):
        assert record.arguments is not None
        assert record.arguments.digest == digest({"text": "hi", "secret": "s3", "count": 1})
        assert parse(record.arguments.summary) == {"text": "hi", "secret": "[redacted:declared]", "count": 1}
    assert ended.result is not None
    assert ended.result.digest == digest({"said": "hi"})
    assert ended.attempt == 1


async def test_policy_judges_what_the_tool_will_receive() -> None:
    world = World()
    await world.invoke.execute(a_request())
    assert world.policy.asked == [("tools/core.say/versions/1.0.0", digest({"text": "hello", "count": 1}))]
    assert world.runner.calls == [{"text": "hello", "count": 1}]


async def test_an_invocation_passes_through_the_states_in_order() -> None:
    world = World()
    await world.invoke.execute(a_request())
    [invocation] = world.watcher.seen.ended
    assert list(invocation.history.steps) == [
        State.PLANNED,
        State.SELECTED,
        State.ARGUMENTS_READY,
        State.APPROVED,
        State.RUNNING,
        State.SUCCEEDED,
    ]


@pytest.mark.parametrize(
    ("changes", "reason", "event", "state"),
    [
        ({"tool": "nobody"}, Reason.TOOL_NOT_FOUND, Event.FAILED, State.BLOCKED),
        ({"arguments": b"{"}, Reason.INVALID_JSON, Event.VALIDATION_FAILED, State.SCHEMA_PARSE_FAILED),
        ({"arguments": b"{}"}, Reason.ARGUMENTS_INVALID, Event.VALIDATION_FAILED, State.VALIDATION_FAILED),
        (
            {"arguments": b'{"text":"a","undeclared":1}'},
            Reason.ARGUMENTS_INVALID,
            Event.VALIDATION_FAILED,
            State.VALIDATION_FAILED,
        ),
        ({"deadline": 0.0}, Reason.DEADLINE_EXCEEDED, Event.TIMED_OUT, State.TIMED_OUT),
    ],
)
async def test_what_is_refused_before_policy_is_on_record(
    changes: dict[str, Any], reason: Reason, event: Event, state: State
) -> None:
    world = World()
    error = await world.failure(a_request(**changes))
    assert error.reason is reason
    [record] = world.trail.durable
    assert (record.invocation_id, record.reason) == (error.invocation_id, reason)
    assert (record.event, record.state, record.decision) == (event, state, None)
    assert (world.policy.asked, world.runner.calls) == ([], [])


async def test_every_violation_is_listed_with_its_place() -> None:
    error = await World().failure(a_request(arguments=b'{"count":-1,"extra":1,"other":2}'))
    assert error.reason is Reason.ARGUMENTS_INVALID
    assert {(v.path, v.rule) for v in error.violations} == {
        ("/text", "required"),
        ("/count", "minimum"),
        ("/extra", "unevaluatedProperties"),
        ("/other", "unevaluatedProperties"),
    }


async def test_arguments_that_break_the_contract_are_never_shown() -> None:
    world = World()
    await world.failure(a_request(arguments=b'{"text":"a","password":"hunter2"}'))
    assert world.trail.durable[0].arguments == PayloadDigest(digest({"text": "a", "password": "hunter2", "count": 1}))


async def test_a_tool_that_this_executor_cannot_run_is_unavailable() -> None:
    world = World()
    world.runner.knows_tool = False
    error = await world.failure(a_request())
    assert error.reason is Reason.TOOL_UNAVAILABLE
    assert error.metadata["state_reason"] == "it lacks a pack"
    assert world.trail.durable[0].state is State.BLOCKED


async def test_a_view_that_may_be_out_of_date_refuses() -> None:
    world = World()
    world.tools.failure = MeshError(Reason.SERVICE_UNAVAILABLE)
    assert (await world.failure(a_request())).reason is Reason.SERVICE_UNAVAILABLE
    assert world.trail.durable[0].state is State.FAILED


async def test_a_denial_carries_the_reason_of_policy_and_is_on_record() -> None:
    world = World()
    suggestions = (("scope", "a:b"), ("scope", "c:d"))
    world.policy.answer = a_decision(Verdict.DENY, reasons=("No.", "Never."), suggestions=suggestions)
    error = await world.failure(a_request())
    assert error.reason is Reason.SCOPE_MISSING
    assert error.metadata == {"decision": world.policy.answer.name, "needs_scope": "a:b c:d"}
    [record] = world.trail.durable
    assert (record.event, record.status, record.state) == (Event.PERMISSION_DECIDED, Status.ERROR, State.DENIED)
    assert (record.reason, record.invocation_id) == (Reason.SCOPE_MISSING, error.invocation_id)
    assert world.runner.calls == []


async def test_a_denial_about_an_argument_says_which() -> None:
    world = World()
    denial = {"deny_reason": Reason.AUTHORITY_EXCEEDED, "blocked_path": "/amount", "reasons": ("Too much.",)}
    world.policy.answer = a_decision(Verdict.DENY, **denial)
    error = await world.failure(a_request())
    assert [(each.path, each.rule) for each in error.violations] == [("/amount", "authority.exceeded")]


async def test_what_a_person_must_decide_waits_on_record() -> None:
    world = World()
    world.policy.answer = a_decision(Verdict.NEEDS_APPROVAL, approver_groups=("ops", "leads"), quorum=2)
    error = await world.failure(a_request())
    assert error.reason is Reason.APPROVAL_REQUIRED
    assert (error.metadata["approver_groups"], error.metadata["quorum"]) == ("ops leads", "2")
    assert (error.metadata["ticket"], error.metadata["state"]) == ("tickets/1", "pending")
    [record] = world.trail.durable
    assert (record.event, record.state) == (Event.PERMISSION_DECIDED, State.AWAITING_APPROVAL)
    assert record.ticket == "tickets/1"
    assert world.runner.calls == []


async def test_an_obligation_that_cannot_be_met_refuses_the_call() -> None:
    world = World()
    world.policy.answer = a_decision(obligations=(Obligation("cap_rows", ("5",)), Obligation("dry_run")))
    error = await world.failure(a_request())
    assert (error.reason, error.metadata["obligations"]) == (Reason.PERMISSION_DENIED, "dry_run")
    [record] = world.trail.durable
    assert record.state is State.DENIED
    assert record.decision is not None
    assert record.decision.verdict is Verdict.DENY
    assert record.decision.name == error.metadata["decision"] != world.policy.answer.name
    assert world.runner.calls == []


@pytest.mark.parametrize(
    ("reason", "state"), [(Reason.POLICY_ENGINE_ERROR, State.FAILED), (Reason.TOKEN_REVOKED, State.DENIED)]
)
async def test_without_a_decision_nothing_runs(reason: Reason, state: State) -> None:
    world = World()
    world.policy.answer = MeshError(reason)
    assert (await world.failure(a_request())).reason is reason
    [record] = world.trail.durable
    assert (record.state, record.decision) == (state, None)
    assert world.runner.calls == []


async def test_a_result_that_breaks_its_schema_never_reaches_the_caller() -> None:
    world = World()

    async def lie(arguments: dict[str, Any]) -> Any:
        return {"said": 5}

    world.runner.behave = lie
    error = await world.failure(a_request())
    assert error.reason is Reason.RESULT_INVALID
    assert [(v.path, v.rule) for v in error.violations] == [("/said", "type")]
    ended = world.trail.durable[-1]
    assert (ended.event, ended.state, ended.result) == (Event.FAILED, State.FAILED, None)


@pytest.mark.parametrize("value", [float("nan"), 2**64, {1, 2}])
async def test_a_result_without_a_json_form_is_invalid(value: Any) -> None:
    world = World(a_tool(output=a_tool().output.__class__(lambda value: ())))

    async def odd(arguments: dict[str, Any]) -> Any:
        return {"said": value}

    world.runner.behave = odd
    assert (await world.failure(a_request())).reason is Reason.RESULT_INVALID


async def test_a_result_that_is_nested_too_deeply_is_invalid() -> None:
    world = World(a_tool(output=a_tool().output.__class__(lambda value: ())))

    async def deep(arguments: dict[str, Any]) -> Any:
        value: Any = "end"
        for _ in range(80):
            value = [value]
        return value

    world.runner.behave = deep
    assert (await world.failure(a_request())).reason is Reason.RESULT_INVALID


async def test_a_result_beyond_its_limit_is_stored_and_referenced() -> None:
    world = World(a_tool(max_result_bytes=10))
    result = await world.invoke.execute(a_request())
    assert (result.content, result.stored is not None) == (b"", True)
    assert result.stored is not None
    assert parse(result.stored.preview) == {"said": "hello"}


async def test_a_result_that_may_not_be_stored_is_too_large() -> None:
    world = World(a_tool(max_result_bytes=10, persists=False))
    error = await world.failure(a_request())
    assert (error.reason, error.metadata["limit_bytes"]) == (Reason.RESULT_TOO_LARGE, "10")


async def test_an_earlier_result_is_used_again_for_the_same_caller_only() -> None:
    world = World(a_tool(cache_seconds=60.0))
    first, again = await world.invoke.execute(a_request()), await world.invoke.execute(a_request())
    other = await world.invoke.execute(a_request(caller=a_caller(subject="did:key:bob")))
    assert [first.source, again.source, other.source] == [Source.COMPUTED, Source.CACHE, Source.COMPUTED]
    assert again.content == first.content
    assert again.retrieved is not None
    assert len(world.runner.calls) == 2
    assert len(world.trail.durable) == 6


@pytest.mark.parametrize(
    ("failure", "stale"),
    [
        (errors.external_unavailable("https://api.example.com", "unreachable", "none"), True),
        (errors.circuit_open("https://api.example.com", 5.0), True),
        (errors.external_refused("https://api.example.com", 404), False),
    ],
    ids=["unavailable", "circuit open", "refused"],
)
async def test_an_older_result_answers_while_the_service_fails_and_is_marked(failure: MeshError, stale: bool) -> None:
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    world = World(a_tool(cache_seconds=10.0, stale_seconds=60.0), clock=clock)
    first = await world.invoke.execute(a_request())

    async def fail(arguments: dict[str, Any]) -> Any:
        raise failure

    world.runner.behave = fail
    clock.advance(11.0)
    # Neither another caller nor a call that failed by itself gets it.
    assert (await world.failure(a_request(caller=a_caller(subject="did:key:bob")))).reason is failure.reason
    if not stale:
        assert (await world.failure(a_request())).reason is failure.reason
        return
    again = await world.invoke.execute(a_request())
    assert (again.source, again.content) == (Source.STALE_CACHE, first.content)
    assert again.retrieved is not None
    clock.advance(60.0)
    assert (await world.failure(a_request())).reason is failure.reason


async def test_a_tool_that_changed_what_it_may_not_is_out_of_use_and_nothing_is_kept() -> None:
    world, ends = World(a_tool()), []

    async def end(how: str) -> None:
        ends.append(how)

    async def run(tool: Any, work: Any) -> RunResult:
        work.begin()
        return RunResult(
            {"said": "x"},
            (Effect("file:a/b", "create", True),),
            commit=lambda: end("keep"),
            rollback=lambda: end("drop"),
        )

    world.runner.run = run  # type: ignore[method-assign]
    error = await world.failure(a_request())
    assert (error.reason, ends) == (Reason.SIDE_EFFECT_VIOLATION, ["drop"])
    assert world.quarantine.imposed == [("tools/core.say/versions/1.0.0", error.invocation_id)]
    assert [effect.resource for effect in world.trail.durable[-1].violations] == ["file:a/b"]


async def test_effects_are_made_real_before_the_caller_hears_and_once() -> None:
    world, ends = World(a_write_tool(effects=(Effect("file:a/*", "create"),), compensation="tools/core.unsay")), []

    async def end(how: str) -> None:
        ends.append((how, len(world.trail.durable)))

    async def run(tool: Any, work: Any) -> RunResult:
        work.begin()
        made = (Effect("file:a/b", "create", True),)
        return RunResult(
            {"said": "x"},
            made,
            (("compute", 7),),
            {"n": 1},
            commit=lambda: end("keep"),
            committed=lambda: made,
            rollback=lambda: end("drop"),
        )

    world.runner.run = run  # type: ignore[method-assign]
    result = await world.invoke.execute(a_request(idempotency_key="k"))
    assert ends == [("keep", 1)]
    assert (result.effects[0].resource, result.costs, result.undone_by) == (
        "file:a/b",
        (("compute", 7),),
        "tools/core.unsay",
    )
    assert parse(result.undo) == {"n": 1}
    record = world.trail.durable[-1]
    assert (record.undone_by, record.costs, record.effects) == (
        "tools/core.unsay",
        (("compute", 7),),
        (Effect("file:a/b", "create", True),),
    )


async def test_a_result_that_breaks_its_contract_leaves_no_effect() -> None:
    world, ends = World(a_write_tool(effects=(Effect("file:a/*", "create"),))), []

    async def end(how: str) -> None:
        ends.append(how)

    async def run(tool: Any, work: Any) -> RunResult:
        work.begin()
        return RunResult({"wrong": 1}, commit=lambda: end("keep"), rollback=lambda: end("drop"))

    world.runner.run = run  # type: ignore[method-assign]
    error = await world.failure(a_request(idempotency_key="k"))
    assert (error.reason, ends) == (Reason.RESULT_INVALID, ["drop"])


async def test_a_sampled_call_has_a_span_for_each_phase() -> None:
    spans: list[str] = []

    class Span:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            spans.append(self.name)

        def __exit__(self, *error: object) -> None:
            spans.append(f"/{self.name}")

    world = World()
    world.ports.spans.begin = lambda: Span  # type: ignore[method-assign, assignment, return-value]
    await world.invoke.execute(a_request())
    phases = ["request", "validate", "authorize", "execute", "verify", "return"]
    assert spans == [part for name in phases for part in (name, f"/{name}")]


async def test_calls_under_way_are_counted_and_forgotten() -> None:
    world = World()
    counts: list[int] = []

    async def look(arguments: dict[str, Any]) -> Any:
        counts.append(world.in_flight.count)
        return {"said": "x"}

    world.runner.behave = look
    await world.invoke.execute(a_request())
    await world.failure(a_request(tool="nobody"))
    assert (counts, world.in_flight.count) == ([1], 0)
