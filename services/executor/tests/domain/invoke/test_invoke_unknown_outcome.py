"""A call whose key is in doubt, from asking to answer; and an owner that was taken for dead."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import dump
from libs.common.runtime.clock import SystemClock
from services.executor.adapters.registry.json_schema import output_contract
from services.executor.domain.hooks.hooks import Hook, Hooks, Phase
from services.executor.domain.invoke.invoke import Invoke
from services.executor.domain.model import Event, Obligation
from services.executor.domain.phases.pipeline import Pipeline
from services.executor.domain.states import State
from services.executor.domain.tool import UncertainOutcome
from services.executor.tests.fakes import World, never_ends
from services.executor.tests.samples import a_decision, a_request, a_tool, a_write_tool

STATUS_INPUT = {
    "type": "object",
    "properties": {"idempotency_key": {"type": "string"}, "invocation_ids": {"type": "array"}},
}


class Doubtful(World):
    """A world with a tool of some rule, the tool that knows its status, and a key whose first owner has died in the
    middle of its run.
    """

    def __init__(self, rule: UncertainOutcome) -> None:
        super().__init__(a_write_tool(uncertain=rule, status_tool="status", repeatable=rule is UncertainOutcome.REPEAT))
        status = a_tool(
            name="tools/core.status/versions/1.0.0",
            qualified="core.status",
            entry_point="status",
            input_schema=STATUS_INPUT,
            output=output_contract(b"{}", ()),
            defaults=(),
        )
        self.tools.tools["status"] = status
        self.status: Any = {"happened": False}
        self.say = self.runner.behave

    async def first_dies(self) -> str:
        """Leave the key as a process does that was killed while its tool ran; return its invocation."""
        settle, release, abandon = self.claims.settle, self.claims.release, self.claims.abandon

        async def lost(*anything: Any) -> None:
            """A dead process says nothing."""

        self.claims.settle = self.claims.release = self.claims.abandon = lost  # type: ignore[assignment, method-assign]
        self.runner.behave = never_ends
        call = asyncio.ensure_future(self.invoke.execute(a_request(idempotency_key="k")))
        await self.runner.started.wait()
        call.cancel()
        await asyncio.wait([call])
        self.claims.settle, self.claims.release = settle, release  # type: ignore[method-assign]
        self.claims.abandon = abandon  # type: ignore[method-assign]
        [(claim, _)] = self.claims.held.values()
        self.claims.lost_owners.add(claim.invocation_id)
        self.runner.behave = self._answer
        self.runner.calls.clear()
        return claim.invocation_id

    async def _answer(self, arguments: dict[str, Any]) -> Any:
        if "invocation_ids" not in arguments:
            return await self.say(arguments)
        if isinstance(self.status, Exception):
            raise self.status
        return self.status

    @property
    def ran(self) -> list[str]:
        return ["status" if "invocation_ids" in arguments else "say" for arguments in self.runner.calls]


async def test_what_happened_is_replayed_and_both_calls_are_on_record() -> None:
    world = Doubtful(UncertainOutcome.QUERY_STATUS)
    first = await world.first_dies()
    world.status = {"happened": True, "result": {"said": "hello"}}
    result = await world.invoke.execute(a_request(idempotency_key="k"))
    assert (result.content, result.replayed, result.invocation_id) == (b'{"said":"hello"}', True, first)
    assert world.ran == ["status"]
    asked = [
        record for record in world.trail.durable if record.tool is not None and record.tool.entry_point == "status"
    ]
    assert [record.event for record in asked] == [Event.PERMISSION_DECIDED, Event.SUCCEEDED]
    assert asked[0].arguments is not None
    # The next one makes no call.
    again = await world.invoke.execute(a_request(idempotency_key="k"))
    assert (again.content, world.ran) == (result.content, ["status"])


async def test_what_happened_is_stored_where_it_is_too_large_to_be_embedded() -> None:
    world = Doubtful(UncertainOutcome.QUERY_STATUS)
    world.tools.tools["status"] = replace(world.tools.tools["status"], max_result_bytes=1 << 20)
    await world.first_dies()
    world.status = {"happened": True, "result": {"said": "x" * 20_000}}
    result = await world.invoke.execute(a_request(idempotency_key="k"))
    assert (result.content, result.replayed) == (b"", True)
    assert result.stored is not None
    assert await world.ports.large_results.read(result.stored) == dump({"said": "x" * 20_000})
    again = await world.invoke.execute(a_request(idempotency_key="k"))
    assert (again.stored, world.ran) == (result.stored, ["status"])


async def test_what_happened_and_cannot_be_stored_now_is_asked_about_by_the_next() -> None:
    world = Doubtful(UncertainOutcome.QUERY_STATUS)
    world.tools.tools["status"] = replace(world.tools.tools["status"], max_result_bytes=1 << 20)
    await world.first_dies()
    world.status = {"happened": True, "result": {"said": "x" * 20_000}}
    world.results.failure = MeshError(Reason.SERVICE_UNAVAILABLE)
    error = await world.failure(a_request(idempotency_key="k"))
    assert (error.reason, error.row.retryable) == (Reason.SERVICE_UNAVAILABLE, True)
    world.results.failure = None
    assert (await world.invoke.execute(a_request(idempotency_key="k"))).stored is not None


async def test_an_outcome_is_returned_without_what_was_removed_from_it() -> None:
    world = Doubtful(UncertainOutcome.QUERY_STATUS)
    world.tools.tools["say"] = replace(world.tools.tools["say"], output=output_contract(b"{}", ()))
    await world.first_dies()
    world.status = {"happened": True, "result": {"said": "hello", "email": "a@example.com"}}
    world.policy.answer = a_decision(obligations=(Obligation("redact_fields", ("/email",)),))
    for _ in range(2):
        result = await world.invoke.execute(a_request(idempotency_key="k"))
        assert (result.content, result.changed) == (b'{"said":"hello"}', ("/email",))


async def test_a_recovered_outcome_passes_the_hooks() -> None:
    world = Doubtful(UncertainOutcome.QUERY_STATUS)
    await world.first_dies()

    class Withholds:
        async def ask(self, event: dict[str, Any], share: object) -> Any:
            return {"stop": "not outside"}

    hooks = Hooks([Hook("guard", Phase.POST, ("core.say",), 5.0, Withholds())], SystemClock())
    world.pipeline = Pipeline(replace(world.ports, hooks=hooks), in_flight=world.in_flight, audit_wait=2.0)
    world.invoke = Invoke(world.pipeline)
    world.status = {"happened": True, "result": {"said": "hello"}}
    for _ in range(2):
        assert (await world.failure(a_request(idempotency_key="k"))).reason is Reason.HOOK_BLOCKED
    assert world.ran == ["status"]


async def test_what_did_not_happen_is_run() -> None:
    world = Doubtful(UncertainOutcome.QUERY_STATUS)
    await world.first_dies()
    result = await world.invoke.execute(a_request(idempotency_key="k"))
    assert (result.replayed, world.ran) == (False, ["status", "say"])
    assert (await world.invoke.execute(a_request(idempotency_key="k"))).replayed


async def test_a_status_tool_that_is_away_leaves_the_doubt_for_the_next() -> None:
    world = Doubtful(UncertainOutcome.QUERY_STATUS)
    await world.first_dies()
    world.status = MeshError(Reason.EXTERNAL_UNAVAILABLE)
    error = await world.failure(a_request(idempotency_key="k"))
    assert (error.reason, world.ran) == (Reason.SERVICE_UNAVAILABLE, ["status"])
    world.status = {"happened": True, "result": {"said": "hello"}}
    assert (await world.invoke.execute(a_request(idempotency_key="k"))).replayed
    assert world.ran == ["status", "status"]


async def test_an_unknown_outcome_is_the_same_for_all_and_names_the_first_call() -> None:
    world = Doubtful(UncertainOutcome.FAIL)
    first = await world.first_dies()
    errors = [await world.failure(a_request(idempotency_key="k")) for _ in range(3)]
    assert {(error.reason, error.metadata["first_invocation"]) for error in errors} == {(Reason.UNKNOWN_OUTCOME, first)}
    assert world.ran == []
    assert world.trail.durable[-1].reason is Reason.UNKNOWN_OUTCOME


async def test_a_run_that_was_stopped_half_way_is_asked_about_by_the_next() -> None:
    world = Doubtful(UncertainOutcome.QUERY_STATUS)
    world.tools.tools["say"] = a_write_tool(
        uncertain=UncertainOutcome.QUERY_STATUS, status_tool="status", own_limit=0.05
    )
    world.runner.behave = never_ends
    assert (await world.failure(a_request(idempotency_key="k"))).reason is Reason.TOOL_TIMEOUT
    world.runner.behave = world._answer
    world.status = {"happened": True, "result": {"said": "hello"}}
    assert (await world.invoke.execute(a_request(idempotency_key="k"))).replayed


@pytest.mark.parametrize("rule", list(UncertainOutcome))
async def test_nothing_runs_under_a_key_that_may_belong_to_another_call(rule: UncertainOutcome) -> None:
    world = Doubtful(rule)
    world.claims.is_held = lambda claim: False  # type: ignore[method-assign]
    error = await world.failure(a_request(idempotency_key="k"))
    assert (error.reason, world.runner.calls) == (Reason.SERVICE_UNAVAILABLE, [])
    assert world.claims.held == {}


@pytest.mark.parametrize(
    ("rule", "reason"),
    [(UncertainOutcome.FAIL, Reason.UNKNOWN_OUTCOME), (UncertainOutcome.REPEAT, Reason.SERVICE_UNAVAILABLE)],
)
async def test_a_late_owner_is_on_record_and_answers_nothing_of_its_own(rule: UncertainOutcome, reason: Reason) -> None:
    world = Doubtful(rule)

    async def overtaken(arguments: dict[str, Any]) -> Any:
        [(claim, _)] = world.claims.held.values()
        world.claims.lost_owners.add(claim.invocation_id)
        other = await world.invoke.execute(a_request(idempotency_key="k")) if rule is UncertainOutcome.REPEAT else None
        if other is None:
            await world.failure(a_request(idempotency_key="k"))
        return {"said": "late"}

    async def runs_inline(arguments: dict[str, Any]) -> Any:
        return {"said": "second"}

    turns = iter([overtaken, runs_inline])
    world.runner.behave = lambda arguments: next(turns)(arguments)
    error = await world.failure(a_request(idempotency_key="k"))
    assert error.reason is reason
    assert world.trail.durable[-1].state is State.SUCCEEDED
    assert world.watcher.seen.causes == []
    [(_, settled)] = world.claims.held.values()
    assert settled is not None
    assert dump({"said": "late"}) != getattr(settled.outcome, "content", b"")


@pytest.mark.parametrize("rule", list(UncertainOutcome))
async def test_a_run_that_loses_its_key_is_stopped_unless_no_call_would_repeat_it(rule: UncertainOutcome) -> None:
    world = Doubtful(rule)
    world.runner.behave = never_ends
    call = asyncio.ensure_future(world.failure(a_request(idempotency_key="k", deadline=None)))
    await world.runner.started.wait()
    [(claim, _)] = world.claims.held.values()
    world.pipeline.supervisor.active.cancel_lost_claim(claim.invocation_id)
    if rule is UncertainOutcome.FAIL:
        await asyncio.sleep(0)
        assert not call.done()
        call.cancel()
        await asyncio.wait([call])
        return
    error = await call
    assert (error.reason, error.row.retryable) == (Reason.SERVICE_UNAVAILABLE, True)
    assert world.runner.stopped.is_set()


async def test_a_run_that_is_stopped_before_its_key_slips_away_is_asked_about_by_the_next() -> None:
    world = Doubtful(UncertainOutcome.QUERY_STATUS)
    world.runner.behave = never_ends
    call = asyncio.ensure_future(world.failure(a_request(idempotency_key="k", deadline=None)))
    await world.runner.started.wait()
    [(claim, _)] = world.claims.held.values()
    world.pipeline.supervisor.active.cancel_lost_claim(claim.invocation_id)
    await call
    # The key was still its own when it was stopped, and what it had done by then is unknown all the same.
    world.runner.calls.clear()
    world.runner.behave = world._answer
    world.status = {"happened": True, "result": {"said": "hello"}}
    assert (await world.invoke.execute(a_request(idempotency_key="k"))).replayed
    assert world.ran == ["status"]
