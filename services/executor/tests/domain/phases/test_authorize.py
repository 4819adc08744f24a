"""What stands between a decision and the run: a person, a denial, and what the token says about arguments."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from libs.common.auth.constraints import ConstraintChecker
from libs.common.auth.identity import ArgumentConstraint, Grant, Identity
from libs.common.errors import MeshError, Reason
from libs.common.json.canonical import canonical
from libs.common.json.resource_pointers import ResourcePointers
from services.executor.domain.model import Event, Status, Verdict
from services.executor.domain.phases.authorize import find_refusal
from services.executor.domain.preview.preview_invocation import PreviewInvocation
from services.executor.domain.states import State
from services.executor.domain.tool import Mutation
from services.executor.tests.fakes import World
from services.executor.tests.samples import a_caller, a_decision, a_request, a_tool

SHORT = ArgumentConstraint("core.say", canonical({"properties": {"text": {"maxLength": 3}}}))
PLACES = ResourcePointers.of({"properties": {"text": {"x-resource": "word"}}})


def a_confined_caller(**confinement: Any) -> Any:
    fields = {"tools": (Grant("*"),), **confinement}
    return a_caller(confined=Identity("did:web:a", "t", 4e9, **fields))


def reason_of(caller: Any, tool: Any, arguments: dict[str, Any]) -> Reason | None:
    resources = () if tool.resources is None else tool.resources(arguments)
    refused = find_refusal(a_decision(), tool, caller, arguments, resources, ConstraintChecker())
    return None if refused is None else refused[0].reason


def test_a_token_without_confinement_is_not_looked_at() -> None:
    assert reason_of(a_caller(), a_tool(), {"text": "hello"}) is None


@pytest.mark.parametrize(("text", "reason"), [("abc", None), ("abcd", Reason.AUTHORITY_EXCEEDED)])
def test_arguments_are_held_to_the_token(text: str, reason: Reason | None) -> None:
    caller = a_confined_caller(argument_constraints=(SHORT,))
    assert reason_of(caller, a_tool(), {"text": text}) is reason


@pytest.mark.parametrize(
    ("places", "closed", "text", "reason"),
    [
        (PLACES, False, "good", None),
        (PLACES, False, "bad", Reason.AUTHORITY_EXCEEDED),
        (None, False, "good", Reason.AUTHORITY_EXCEEDED),
        (None, True, "good", None),
    ],
)
def test_resources_are_held_to_the_token(places: Any, closed: bool, text: str, reason: Reason | None) -> None:
    tool = a_tool(resources=places, closed_world=closed)
    assert reason_of(a_confined_caller(resources=("word:go*",)), tool, {"text": text}) is reason


def test_the_argument_that_violates_the_token_is_named() -> None:
    caller = a_confined_caller(argument_constraints=(SHORT,))
    refused = find_refusal(a_decision(), a_tool(), caller, {"text": "hello"}, (), ConstraintChecker())
    assert refused is not None
    assert refused[1] is State.DENIED
    assert [violation.path for violation in refused[0].violations] == ["/text"]


@pytest.mark.parametrize(
    ("decision", "reason", "state"),
    [
        # No person is asked about a call that its token does not cover.
        (a_decision(Verdict.NEEDS_APPROVAL), Reason.AUTHORITY_EXCEEDED, State.DENIED),
        (a_decision(Verdict.DENY), Reason.SCOPE_MISSING, State.DENIED),
    ],
)
def test_a_denial_comes_before_the_token_and_approval_after_it(decision: Any, reason: Reason, state: State) -> None:
    caller = a_confined_caller(argument_constraints=(SHORT,))
    refused = find_refusal(decision, a_tool(), caller, {"text": "hello"}, (), ConstraintChecker())
    assert refused is not None
    assert (refused[0].reason, refused[1]) == (reason, state)


async def test_a_call_beyond_its_token_is_on_record_and_never_runs() -> None:
    world = World()
    caller = a_confined_caller(argument_constraints=(SHORT,))
    error = await world.failure(a_request(caller=caller))
    assert error.reason is Reason.AUTHORITY_EXCEEDED
    assert world.runner.calls == []
    [record] = world.trail.durable
    assert (record.event, record.reason) == (Event.PERMISSION_DECIDED, Reason.AUTHORITY_EXCEEDED)
    assert (
        await world.invoke.execute(a_request(caller=caller, arguments=b'{"text":"hi"}'))
    ).content == b'{"said":"hi"}'


@pytest.mark.parametrize("preview", [False, True])
async def test_a_call_in_another_session_than_its_tokens_is_recorded_without_a_decision(preview: bool) -> None:
    world = World(a_tool(dry_run=True))
    request = a_request(caller=a_caller(session_id="mine", other_session=True))
    with pytest.raises(MeshError) as caught:
        use_case = PreviewInvocation(world.pipeline, world.ports.previews) if preview else world.invoke
        await use_case.execute(request)
    error = caught.value
    assert (error.reason, [each.path for each in error.violations]) == (Reason.AUTHORITY_EXCEEDED, ["session_id"])
    assert (world.runner.calls, world.policy.asked) == ([], [])
    [record] = world.trail.durable
    assert (record.state, record.status, record.reason) == (State.DENIED, Status.ERROR, Reason.AUTHORITY_EXCEEDED)
    assert record.decision is not None
    assert (record.decision.verdict, record.decision.name) == (Verdict.DENY, error.metadata["decision"])
    [refusal] = world.policy.refused
    assert (refusal.deny_reason, refusal.blocked_path) == (Reason.AUTHORITY_EXCEEDED, "session_id")


async def test_a_refusal_on_a_reused_allow_has_a_decision_of_its_own() -> None:
    world = World()
    allow = world.policy.answer = replace(a_decision(), made_for="another call")
    caller = a_confined_caller(argument_constraints=(SHORT,))
    error = await world.failure(a_request(caller=caller))
    [record] = world.trail.durable
    assert record.decision is not None
    assert (record.decision.verdict, record.decision.deny_reason) == (Verdict.DENY, Reason.AUTHORITY_EXCEEDED)
    assert record.decision.name == error.metadata["decision"] == "decisions/refusal-1"
    [refusal] = world.policy.refused
    assert (refusal.name, refusal.blocked_path) == (allow.name, "/text")


async def test_a_reused_denial_becomes_a_decision_about_this_call() -> None:
    world = World()
    world.policy.answer = replace(a_decision(Verdict.DENY), made_for="another call")
    error = await world.failure(a_request())
    assert error.metadata["decision"] == "decisions/refusal-1"
    [record] = world.trail.durable
    assert record.decision is not None
    assert record.decision.name == "decisions/refusal-1"


async def test_approval_that_the_mesh_requires_is_a_decision_of_its_own() -> None:
    world = World(a_tool(mutation=Mutation.WRITE_IRREVERSIBLE, dry_run=True))
    allow = world.policy.answer = a_decision()
    await world.failure(a_request())
    [refusal, *_] = world.policy.refused
    assert (refusal.verdict, refusal.name) == (Verdict.NEEDS_APPROVAL, allow.name)


async def test_a_tool_that_the_token_does_not_name_is_denied_on_record() -> None:
    world = World()
    await world.failure(a_request(caller=a_caller(grants=(Grant("other.*"),))))
    [record] = world.trail.durable
    assert record.decision is not None
    assert (record.decision.verdict, record.decision.deny_reason) == (Verdict.DENY, Reason.TOOL_NOT_IN_TOKEN)
