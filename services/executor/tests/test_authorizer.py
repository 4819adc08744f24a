"""Policy asked over the mesh, and remembered as long as it allows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import grpc.aio
import pytest
from toolmesh.authz.v1 import decision_pb2 as dpb

from libs.common.clock import ManualClock, SystemClock
from libs.common.errors import MeshError, Reason
from libs.common.rpc.call import Call, enter
from libs.common.telemetry.trace import continue_trace
from services.executor.adapters.authorizer import PolicyAuthorizer
from services.executor.domain.model import Decision, Tool, Verdict
from services.executor.tests.peers import AuthzPeer
from services.executor.tests.samples import a_caller, a_tool


class Asking:
    """An authorizer and the question that most tests ask."""

    def __init__(self, channel: grpc.aio.Channel, remember: int = 100) -> None:
        self.clock = ManualClock(SystemClock().now())
        self.authorizer = PolicyAuthorizer(channel, self.clock, remember=remember)

    async def ask(self, tool: Tool | None = None, digest: str = "sha256:a", **caller: Any) -> Decision:
        return await self.authorizer.decide(tool or a_tool(), a_caller(**caller), digest, "invocation-1")


@pytest.fixture
async def asking(authz: AuthzPeer, reach: Callable[..., Any]) -> Asking:
    return Asking(await reach("authz", authz.address))


async def test_policy_is_told_everything_about_the_call(asking: Asking, authz: AuthzPeer) -> None:
    tool = a_tool(tags=("t",), required_permissions=("net:x",), approval_always=True, impact_scope=3)
    decision = await asking.ask(tool)
    assert decision.verdict is Verdict.ALLOW
    assert (decision.policies, decision.policy_set_version) == (("policy0",), "set-1")
    [facts] = authz.asked
    assert (facts.tool_version, facts.tool_digest, facts.mutation_class) == (tool.name, tool.digest, "read_only")
    assert (list(facts.required_scopes), list(facts.required_permissions)) == (["tools:call"], ["net:x"])
    assert (list(facts.tags), facts.approval_always, facts.impact_scope) == (["t"], True, 3)
    assert (facts.arguments_digest, facts.session_id, facts.invocation_id) == ("sha256:a", "session-1", "invocation-1")


async def test_a_cacheable_answer_is_the_same_decision_until_it_expires(asking: Asking, authz: AuthzPeer) -> None:
    first = await asking.ask()
    asking.clock.advance(50)
    assert (await asking.ask(digest="sha256:b")).name == first.name
    assert len(authz.asked) == 1
    asking.clock.advance(600)
    assert (await asking.ask()).name != first.name
    assert len(authz.asked) == 2


@pytest.mark.parametrize(
    "other",
    [
        {"token_id": "token-2"},
        {"session_id": "session-2"},
        {"tool": a_tool(digest="sha256:other")},
        {"tool": a_tool(name="tools/core.say/versions/2.0.0")},
    ],
)
async def test_another_question_is_asked_anew(asking: Asking, authz: AuthzPeer, other: dict[str, Any]) -> None:
    await asking.ask()
    await asking.ask(**other)
    assert len(authz.asked) == 2


async def test_an_answer_that_is_not_cacheable_is_not_kept(asking: Asking, authz: AuthzPeer) -> None:
    authz.answer = lambda facts: authz.allow(cacheable=False)
    await asking.ask()
    await asking.ask()
    assert len(authz.asked) == 2


async def test_the_same_question_at_the_same_time_is_asked_once(asking: Asking, authz: AuthzPeer) -> None:
    authz.answering.clear()
    calls = [asyncio.ensure_future(asking.ask()) for _ in range(20)]
    await authz.arrived.wait()
    authz.answering.set()
    decisions = await asyncio.gather(*calls)
    assert len(authz.asked) == 1
    assert len({decision.name for decision in decisions}) == 1


async def test_who_waited_for_an_answer_that_holds_only_once_asks_alone(asking: Asking, authz: AuthzPeer) -> None:
    authz.answer = lambda facts: authz.allow(cacheable=False)
    authz.answering.clear()
    calls = [asyncio.ensure_future(asking.ask(digest=f"sha256:{n}")) for n in range(3)]
    await authz.arrived.wait()
    authz.answering.set()
    decisions = await asyncio.gather(*calls)
    assert {facts.arguments_digest for facts in authz.asked} == {"sha256:0", "sha256:1", "sha256:2"}
    assert len({decision.name for decision in decisions}) == 3


async def test_an_asker_that_leaves_does_not_take_the_answer_from_the_others(asking: Asking, authz: AuthzPeer) -> None:
    authz.answering.clear()
    first, second = asyncio.ensure_future(asking.ask()), asyncio.ensure_future(asking.ask())
    await authz.arrived.wait()
    first.cancel()
    authz.answering.set()
    assert (await second).verdict is Verdict.ALLOW
    assert first.cancelled() or (await asyncio.wait([first]))
    assert len(authz.asked) == 1


async def test_each_asker_gets_a_failure_of_its_own(asking: Asking, authz: AuthzPeer) -> None:
    authz.answering.clear()
    authz.failure = Reason.POLICY_ENGINE_ERROR
    calls = [asyncio.ensure_future(asking.ask()) for _ in range(2)]
    await authz.arrived.wait()
    authz.answering.set()
    first, second = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(first, MeshError)
    assert isinstance(second, MeshError)
    assert first is not second
    assert first.reason is second.reason is Reason.POLICY_ENGINE_ERROR


async def test_the_question_carries_the_token_and_a_deadline_that_shrank(asking: Asking, authz: AuthzPeer) -> None:
    enter(Call("/test", continue_trace(None), token="the-token", deadline=time.monotonic() + 3))
    await asking.ask()
    assert authz.metadata[0]["authorization"] == "Bearer the-token"
    assert authz.deadlines[0] < 3


async def test_who_waits_for_a_hasty_asker_asks_again_when_its_time_is_over(asking: Asking, authz: AuthzPeer) -> None:
    authz.answering.clear()
    enter(Call("/test", continue_trace(None), deadline=time.monotonic() + 0.1))
    hasty = asyncio.ensure_future(asking.ask())
    await authz.arrived.wait()
    enter(Call("/test", continue_trace(None), deadline=time.monotonic() + 30))
    patient = asyncio.ensure_future(asking.ask())
    with pytest.raises(MeshError) as caught:
        await hasty
    assert caught.value.reason is Reason.DEADLINE_EXCEEDED
    authz.answering.set()
    assert (await patient).verdict is Verdict.ALLOW
    assert len(authz.asked) == 2


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (Reason.POLICY_ENGINE_ERROR, Reason.POLICY_ENGINE_ERROR),
        (Reason.TOKEN_REVOKED, Reason.TOKEN_REVOKED),
        (Reason.INVALID_REQUEST, Reason.SERVICE_UNAVAILABLE),
        (Reason.PEER_NOT_ALLOWED, Reason.SERVICE_UNAVAILABLE),
        (Reason.INTERNAL, Reason.SERVICE_UNAVAILABLE),
    ],
)
async def test_without_a_decision_it_fails(asking: Asking, authz: AuthzPeer, failure: Reason, reason: Reason) -> None:
    authz.failure = failure
    with pytest.raises(MeshError) as caught:
        await asking.ask()
    assert caught.value.reason is reason
    authz.failure = None
    assert (await asking.ask()).verdict is Verdict.ALLOW


async def test_a_denial_keeps_its_reason_and_advice(asking: Asking, authz: AuthzPeer) -> None:
    update = dpb.SuggestedUpdate(kind="scope", value="a:b")
    authz.answer = lambda facts: authz.deny(Reason.SCOPE_MISSING, reasons=["No."], suggested_updates=[update])
    decision = await asking.ask()
    assert (decision.verdict, decision.deny_reason) == (Verdict.DENY, Reason.SCOPE_MISSING)
    assert (decision.reasons, decision.suggestions) == (("No.",), (("scope", "a:b"),))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"deny": dpb.Deny()},
        {"deny": dpb.Deny(reason=1)},
        {"allow": dpb.Allow(), "pending_classifier_check": True},
        {"allow": dpb.Allow(), "mode": dpb.DECISION_MODE_SHADOW},
    ],
)
async def test_what_is_no_clear_yes_denies(asking: Asking, authz: AuthzPeer, changes: dict[str, Any]) -> None:
    authz.answer = lambda facts: authz.decision(**changes)
    decision = await asking.ask()
    assert (decision.verdict, decision.deny_reason) == (Verdict.DENY, Reason.PERMISSION_DENIED)


async def test_what_a_person_must_decide_names_who(asking: Asking, authz: AuthzPeer) -> None:
    needs = dpb.NeedsApproval(approver_groups=["ops"], quorum=2)
    authz.answer = lambda facts: authz.decision(needs_approval=needs)
    decision = await asking.ask()
    assert (decision.verdict, decision.approver_groups, decision.quorum) == (Verdict.NEEDS_APPROVAL, ("ops",), 2)


async def test_every_obligation_is_named_also_one_that_nobody_knows_yet(asking: Asking, authz: AuthzPeer) -> None:
    obligations = [dpb.Obligation(kind=dpb.OBLIGATION_KIND_CAP_ROWS), dpb.Obligation(kind=99), dpb.Obligation()]
    authz.answer = lambda facts: authz.allow(obligations=obligations, updated_input=b"{}")
    assert (await asking.ask()).obligations == ("cap_rows", "99", "unspecified", "updated_input")


async def test_only_so_many_answers_are_kept(authz: AuthzPeer, reach: Callable[..., Any]) -> None:
    asking = Asking(await reach("authz", authz.address), remember=2)
    for token in ("t1", "t2", "t3", "t2", "t3", "t1"):
        await asking.ask(token_id=token)
    assert len(authz.asked) == 4
