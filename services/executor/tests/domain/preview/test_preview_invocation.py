"""Previews: what a call would do is said and recorded, nothing is done, and the token proves it to the call itself."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from libs.common.errors import MeshError, Reason
from libs.common.sealing import KEY_BYTES, Seal
from libs.common.testing.clock import ManualClock
from services.executor.adapters.preview_tokens import VALID, SealedPreviewTokens
from services.executor.convert.invocation import preview_of
from services.executor.domain.hooks.hooks import Hook, Phase
from services.executor.domain.model import Event, Obligation, PreviewResult, Request, Status, Verdict
from services.executor.domain.preview.preview_invocation import PreviewInvocation
from services.executor.domain.run import Forecast, RunRequest, RunResult
from services.executor.domain.states import State
from services.executor.domain.tool import Effect, Mutation, Tool
from services.executor.tests.domain.hooks.test_invocation_hooks import Scripted
from services.executor.tests.fakes import World
from services.executor.tests.samples import a_decision, a_request, a_tool, a_write_tool

DEMANDED = Obligation("dry_run")
SAID = Forecast((Effect("file:a", "create"),), (("there is room", True),), "one file", {"said": "hello"})


class Foreseeing:
    """A runner that can preview, and remembers what became of what it changed."""

    def __init__(self, forecast: Forecast | None = SAID) -> None:
        self.forecast, self.work, self.ends = forecast, [], []  # type: ignore[var-annotated]

    def sandbox_for(self, tool: Tool) -> str | None:
        return "process/bubblewrap"

    def missing_for(self, tool: Tool) -> str:
        return ""

    def runs_inline(self, tool: Tool) -> bool:
        return False

    async def run(self, tool: Tool, work: RunRequest) -> RunResult:
        work.begin()
        self.work.append(work)
        return RunResult(
            {"said": "hello"}, (Effect("file:b", "update", True),), forecast=self.forecast, rollback=self._drop
        )

    async def _drop(self) -> None:
        self.ends.append("dropped")


def previewing(world: World, runner: Foreseeing | None = None) -> PreviewInvocation:
    if runner is not None:
        world.pipeline.preflight._runner = world.pipeline.execution._runner = runner
    return PreviewInvocation(world.pipeline, world.ports.previews)


def told(foreseen: PreviewResult) -> tuple[bytes, str]:
    """What is answered of the result, and why it is not there."""
    answer = preview_of(foreseen)
    return answer.predicted_result, answer.result_left_out


async def refused(preview: PreviewInvocation, request: Request) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await preview.execute(request)
    return caught.value


async def test_a_preview_says_what_the_call_would_do_and_drops_what_it_did() -> None:
    world, runner = World(a_write_tool(dry_run=True)), Foreseeing()
    foreseen = await previewing(world, runner).execute(a_request())
    forecast = foreseen.forecast
    assert (forecast.changes, forecast.preconditions, forecast.impact) == (
        SAID.changes,
        SAID.preconditions,
        SAID.impact,
    )
    assert told(foreseen) == (b'{"said":"hello"}', "")
    assert not foreseen.approval_required
    assert [work.preview for work in runner.work] == [True]
    assert runner.ends == ["dropped"]


async def test_a_tool_without_a_forecast_is_judged_by_its_observed_effects() -> None:
    world, runner = World(a_write_tool(dry_run=True)), Foreseeing(None)
    foreseen = await previewing(world, runner).execute(a_request())
    assert foreseen.forecast.changes == (Effect("file:b", "update", True),)
    assert told(foreseen) == (b'{"said":"hello"}', "")


async def test_a_preview_is_on_record_as_one() -> None:
    world = World(a_write_tool(dry_run=True))
    foreseen = await previewing(world, Foreseeing()).execute(a_request())
    decided, ended = world.trail.durable
    assert [decided.preview, ended.preview] == [True, True]
    assert (decided.event, ended.event, ended.status) == (Event.PERMISSION_DECIDED, Event.SUCCEEDED, Status.SUCCESS)
    assert {decided.invocation_id, ended.invocation_id} == {foreseen.invocation_id}


async def test_a_preview_takes_no_key_and_leaves_none_claimed() -> None:
    world = World(a_write_tool(dry_run=True))
    await previewing(world, Foreseeing()).execute(a_request(idempotency_key="k"))
    assert world.claims.held == {}


async def test_a_tool_that_cannot_say_is_not_asked() -> None:
    world, runner = World(a_write_tool()), Foreseeing()
    error = await refused(previewing(world, runner), a_request())
    assert error.reason is Reason.FAILED_PRECONDITION
    assert runner.work == []


async def test_what_needs_a_person_can_be_previewed_and_still_not_run() -> None:
    world = World(a_write_tool(dry_run=True))
    world.policy.answer = a_decision(verdict=Verdict.NEEDS_APPROVAL)
    foreseen = await previewing(world, Foreseeing()).execute(a_request())
    assert foreseen.approval_required
    error = await world.failure(a_request(idempotency_key="k", preview_token=foreseen.token))
    assert error.reason is Reason.APPROVAL_REQUIRED


async def test_what_policy_removes_from_a_result_is_not_in_a_preview_of_it() -> None:
    world = World(a_write_tool(dry_run=True))
    world.policy.answer = a_decision(obligations=(Obligation("redact_fields", ("/said",)),))
    foreseen = await previewing(world, Foreseeing()).execute(a_request())
    assert told(foreseen) == (b"{}", "")


async def test_what_waits_for_a_person_is_previewed_without_its_result() -> None:
    hook = Scripted({})
    world = World(a_tool(dry_run=True), hooks=[Hook("h", Phase.POST, ("*",), 5.0, hook)])
    world.policy.answer = a_decision(verdict=Verdict.NEEDS_APPROVAL)
    foreseen = await previewing(world, Foreseeing()).execute(a_request())
    assert told(foreseen) == (b"", "needs_approval")
    assert (foreseen.forecast.changes, foreseen.forecast.impact) == (SAID.changes, SAID.impact)
    assert world.trail.durable[-1].result is None
    assert hook.seen == []


@pytest.mark.parametrize("bound", [{"verdict": Verdict.NEEDS_APPROVAL}, {"obligations": (Obligation("redact_pii"),)}])
async def test_where_a_result_is_withheld_the_words_about_it_hold_nothing_personal(bound: dict[str, Any]) -> None:
    said = Forecast((), (("ada@example.com has an account", True),), "writes to ada@example.com", {"said": "hello"})
    world = World(a_write_tool(dry_run=True))
    world.policy.answer = a_decision(**bound)
    forecast = (await previewing(world, Foreseeing(said)).execute(a_request())).forecast
    [(condition, holds)] = forecast.preconditions
    assert holds
    assert "ada@example.com" not in forecast.impact + condition


async def test_what_breaks_the_contract_of_the_result_is_not_foretold() -> None:
    world = World(a_write_tool(dry_run=True))
    error = await refused(previewing(world, Foreseeing(Forecast(result={"told": 1}))), a_request())
    assert error.reason is Reason.RESULT_INVALID


async def test_a_result_too_large_to_be_embedded_is_left_out_with_a_word() -> None:
    world = World(a_write_tool(dry_run=True, max_result_bytes=10))
    foreseen = await previewing(world, Foreseeing()).execute(a_request())
    assert (told(foreseen), world.results.kept) == ((b"", "too_large"), {})


async def test_a_hook_withholds_a_result_that_would_be_returned() -> None:
    hook = Scripted({"stop": "not this"})
    world = World(a_write_tool(dry_run=True), hooks=[Hook("h", Phase.POST, ("*",), 5.0, hook)])
    error = await refused(previewing(world, Foreseeing()), a_request())
    assert error.reason is Reason.HOOK_BLOCKED
    assert [event["result"] for event in hook.seen] == [{"said": "hello"}]


async def test_what_a_result_states_is_on_record() -> None:
    world = World(a_write_tool(dry_run=True))
    await previewing(world, Foreseeing()).execute(a_request())
    assert world.trail.durable[-1].result is not None


async def test_what_is_denied_cannot_be_previewed() -> None:
    world, runner = World(a_write_tool(dry_run=True)), Foreseeing()
    world.policy.answer = a_decision(verdict=Verdict.DENY, deny_reason=Reason.PERMISSION_DENIED)
    error = await refused(previewing(world, runner), a_request())
    assert error.reason is Reason.PERMISSION_DENIED
    assert runner.work == []


def demanding(**changes: Any) -> World:
    world = World(a_tool(dry_run=True, **changes))
    world.policy.answer = a_decision(obligations=(DEMANDED,))
    return world


async def test_a_call_that_must_be_previewed_runs_with_the_token_of_its_preview() -> None:
    world = demanding()
    foreseen = await previewing(world).execute(a_request())
    result = await world.invoke.execute(a_request(preview_token=foreseen.token))
    assert result.content


async def test_a_call_that_must_be_previewed_does_not_run_without() -> None:
    world = demanding()
    error = await world.failure(a_request())
    assert (error.reason, world.runner.calls) == (Reason.PREVIEW_REQUIRED, [])
    [record] = world.trail.durable
    assert (record.state, record.reason) == (State.DENIED, Reason.PREVIEW_REQUIRED)


@pytest.mark.parametrize(
    "changes",
    [
        {"arguments": b'{"text":"other"}'},
        {"caller": replace(a_request().caller, subject="did:key:eve")},
        {"caller": replace(a_request().caller, tenant="elsewhere")},
        {"caller": replace(a_request().caller, session_id="another")},
        {"preview_token": "forged"},
    ],
)
async def test_a_token_of_another_call_is_none(changes: dict[str, Any]) -> None:
    world = demanding()
    foreseen = await previewing(world).execute(a_request())
    error = await world.failure(a_request(**{"preview_token": foreseen.token, **changes}))
    assert error.reason is Reason.PREVIEW_REQUIRED


async def test_a_demand_that_the_tool_cannot_meet_denies_the_call() -> None:
    world = World(a_tool())
    world.policy.answer = a_decision(obligations=(DEMANDED,))
    error = await world.failure(a_request())
    assert error.reason is Reason.PERMISSION_DENIED


IRREVERSIBLE = Mutation.WRITE_IRREVERSIBLE


async def test_what_cannot_be_undone_is_approved_first_whatever_policy_says() -> None:
    world = World(a_write_tool(dry_run=True, mutation=IRREVERSIBLE))
    # A preview alone does not suffice.
    foreseen = await previewing(world).execute(a_request())
    world.runner.calls.clear()
    world.pipeline.gate.preview = None
    error = await world.failure(a_request(idempotency_key="k", preview_token=foreseen.token))
    assert (error.reason, world.runner.calls) == (Reason.APPROVAL_REQUIRED, [])
    record = world.trail.durable[-1]
    assert (record.state, record.ticket) == (State.AWAITING_APPROVAL, error.metadata["ticket"])
    assert record.decision is not None
    assert record.decision.obligations == (DEMANDED,)
    # Nor does an approval whose approver saw no preview.
    ticket = world.approvals.approve_all()
    error = await world.failure(a_request(idempotency_key="k", ticket=ticket))
    assert (error.reason, world.runner.calls) == (Reason.PREVIEW_REQUIRED, [])
    assert (
        await world.invoke.execute(a_request(idempotency_key="k", ticket=ticket, preview_token=foreseen.token))
    ).content


@pytest.mark.parametrize("late", [False, True], ids=["another call", "too late"])
async def test_a_demanded_preview_is_one_of_the_very_call(late: bool) -> None:
    clock = ManualClock()
    world = World(a_write_tool(dry_run=True))
    world.policy.answer = a_decision(obligations=(DEMANDED,))
    world.pipeline.authorization._previews = tokens = SealedPreviewTokens(Seal([b"k" * KEY_BYTES]), clock)
    foreseen = await PreviewInvocation(world.pipeline, tokens).execute(
        a_request(arguments=b'{"text":"hello"}' if late else b'{"text":"x"}')
    )
    clock.advance(VALID.total_seconds() if late else 0)
    error = await world.failure(a_request(idempotency_key="k", preview_token=foreseen.token))
    assert error.reason is Reason.PREVIEW_REQUIRED


async def test_what_can_neither_be_undone_nor_previewed_does_not_run() -> None:
    world = World(a_write_tool(mutation=IRREVERSIBLE))
    error = await world.failure(a_request(idempotency_key="k"))
    assert (error.reason, error.metadata["obligations"]) == (Reason.PERMISSION_DENIED, "dry_run")
    assert world.runner.calls == []


async def test_a_preview_that_fails_is_on_record() -> None:
    world = World(a_write_tool(dry_run=True))
    error = await refused(previewing(world, Foreseeing()), a_request(arguments=b'{"text": 1}'))
    assert error.reason is Reason.ARGUMENTS_INVALID
    assert [record.preview for record in world.trail.durable] == [True]
