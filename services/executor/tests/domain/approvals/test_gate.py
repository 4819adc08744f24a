"""The gate in front of calls that need approval."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import parse_object
from services.executor.domain.model import Verdict
from services.executor.domain.run import RunRequest, RunResult
from services.executor.domain.states import State
from services.executor.domain.tool import Mutation
from services.executor.tests.fakes import World
from services.executor.tests.samples import a_caller, a_decision, a_request, a_tool, a_write_tool

ASKED = a_decision(Verdict.NEEDS_APPROVAL, approver_groups=("ops",), quorum=1)


def a_world(tool: Any = None) -> World:
    world = World(tool or a_write_tool())
    world.policy.answer = ASKED
    return world


async def approved(world: World, **request: Any) -> str:
    """Send a call that needs approval, approve it, and return its ticket."""
    error = await world.failure(a_request(**request))
    assert error.reason is Reason.APPROVAL_REQUIRED
    return world.approvals.approve_all()


async def test_an_approved_call_runs_once_and_its_key_answers_the_same() -> None:
    world = a_world()
    ticket = await approved(world, idempotency_key="k")
    first = await world.invoke.execute(a_request(idempotency_key="k", ticket=ticket))
    again = await world.invoke.execute(a_request(idempotency_key="k", ticket=ticket))
    assert (again.content, again.replayed, len(world.runner.calls)) == (first.content, True, 1)
    error = await world.failure(a_request(idempotency_key="other", ticket=ticket))
    assert (error.reason, len(world.runner.calls)) == (Reason.TICKET_REDEEMED, 1)
    states = [record.state for record in world.trail.durable if record.ticket == ticket]
    assert State.SUCCEEDED in states
    assert states[-1] is State.DENIED


@pytest.mark.parametrize("asked", [1, 5])
async def test_one_approval_starts_one_run_of_concurrent_calls(asked: int) -> None:
    world = a_world(a_tool())
    ticket = await approved(world)
    calls = [world.invoke.execute(a_request(ticket=ticket)) for _ in range(asked)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    failures = [outcome.reason for outcome in outcomes if isinstance(outcome, MeshError)]
    assert failures == [Reason.TICKET_REDEEMED] * (asked - 1)
    assert len(world.runner.calls) == 1


async def test_a_ticket_is_needed_for_other_arguments_and_while_it_is_pending() -> None:
    world = a_world()
    error = await world.failure(a_request(idempotency_key="k"))
    pending = await world.failure(a_request(idempotency_key="k", ticket=error.metadata["ticket"]))
    assert (pending.reason, world.trail.durable[-1].state) == (Reason.APPROVAL_REQUIRED, State.AWAITING_APPROVAL)
    assert len(world.approvals.drafts) == 1
    ticket = world.approvals.approve_all()
    error = await world.failure(a_request(idempotency_key="k", ticket=ticket, arguments=b'{"text":"other"}'))
    assert (error.reason, world.trail.durable[-1].state) == (Reason.TICKET_ARGUMENTS_CHANGED, State.DENIED)
    assert world.runner.calls == []


async def test_policies_that_change_between_check_and_run_void_the_approval() -> None:
    world = a_world()
    ticket = await approved(world, idempotency_key="k")
    acquire = world.claims.acquire

    async def replace_policies(*claim: Any) -> Any:
        world.policy.replaced = {ASKED.policy_set_version}
        return await acquire(*claim)

    world.claims.acquire = replace_policies  # type: ignore[method-assign, assignment]
    error = await world.failure(a_request(idempotency_key="k", ticket=ticket))
    assert (error.reason, world.runner.calls, world.approvals.redeemed) == (Reason.TICKET_POLICY_CHANGED, [], {})


async def test_without_the_approval_service_nothing_runs_and_the_refusal_is_on_record() -> None:
    world = a_world()
    ticket = await approved(world, idempotency_key="k")
    world.approvals.failure = MeshError(Reason.SERVICE_UNAVAILABLE)
    for request in (a_request(idempotency_key="k"), a_request(idempotency_key="k", ticket=ticket)):
        error = await world.failure(request)
        assert error.reason is Reason.SERVICE_UNAVAILABLE
        assert (world.trail.durable[-1].state, world.trail.durable[-1].reason) == (State.BLOCKED, error.reason)
    assert world.runner.calls == []


async def test_a_ticket_shows_the_preview_and_no_sensitive_argument() -> None:
    world = a_world(a_write_tool(dry_run=True))
    caller = a_caller(agent="did:web:a:agent")
    await approved(world, idempotency_key="k", caller=caller, arguments=b'{"text":"mail a@example.com"}')
    [draft] = world.approvals.drafts.values()
    assert draft.caller == caller
    assert b"a@example.com" not in draft.redacted_arguments
    assert set(parse_object(draft.preview)) == {"changes", "change_count", "preconditions", "impact"}


async def test_a_preview_that_fails_does_not_hide_the_ticket() -> None:
    world = a_world(a_write_tool(dry_run=True))

    async def fail(tool: Any, work: RunRequest) -> RunResult:
        raise MeshError(Reason.EXECUTION_FAILED)

    world.runner.run = fail  # type: ignore[method-assign]
    error = await world.failure(a_request(idempotency_key="k"))
    assert error.reason is Reason.APPROVAL_REQUIRED
    [draft] = world.approvals.drafts.values()
    assert parse_object(draft.preview) == {"failed": "EXECUTION_FAILED"}


async def test_nothing_irreversible_runs_without_an_approval_even_if_it_was_let_through() -> None:
    world = World(a_write_tool(dry_run=True, mutation=Mutation.WRITE_IRREVERSIBLE))
    world.pipeline.authorization.authorize = _let_through  # type: ignore[method-assign]
    error = await world.failure(a_request(idempotency_key="k"))
    assert (error.reason, world.runner.calls) == (Reason.APPROVAL_REQUIRED, [])


async def test_no_policy_waives_the_approval_that_an_author_demands() -> None:
    world = World(a_write_tool(approval_always=True))
    error = await world.failure(a_request(idempotency_key="k"))
    assert (error.reason, world.runner.calls) == (Reason.APPROVAL_REQUIRED, [])
    world.pipeline.authorization.authorize = _let_through  # type: ignore[method-assign]
    error = await world.failure(a_request(idempotency_key="k"))
    assert (error.reason, world.runner.calls) == (Reason.APPROVAL_REQUIRED, [])


async def test_an_irreversible_tool_without_a_preview_runs_once_a_person_approved() -> None:
    tool = a_write_tool(mutation=Mutation.WRITE_IRREVERSIBLE, approval_always=True)
    world = World(tool)
    ticket = await approved(world, idempotency_key="k")
    [draft] = world.approvals.drafts.values()
    assert draft.preview == b""
    await world.invoke.execute(a_request(idempotency_key="k", ticket=ticket))
    assert len(world.runner.calls) == 1


async def _let_through(invocation: Any, tool: Any) -> None:
    invocation.decision = a_decision()
    invocation.enter(State.APPROVED)
