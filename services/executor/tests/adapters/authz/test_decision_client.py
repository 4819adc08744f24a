"""Policy decisions requested from authz and cached."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.authz.v1 import decision_pb2 as dpb

from libs.common.auth.identity import Identity
from libs.common.auth.revocations import MAX_SILENCE, RevocationView
from libs.common.call_context import Call, enter
from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import dump
from libs.common.runtime.clock import SystemClock
from libs.common.testing.clock import ManualClock
from libs.common.trace_context import continue_trace
from services.executor.adapters.authz.decision_client import MAX_ARGUMENTS, PolicyAuthorizer
from services.executor.domain.model import Decision, Question, SpendingLimit, Verdict
from services.executor.domain.tool import Tool, ToolTrust
from services.executor.tests.peers import AuthzPeer
from services.executor.tests.samples import a_caller, a_tool


class Asking:
    """An authorizer and the question that most tests ask."""

    def __init__(self, channel: grpc.aio.Channel, remember: int = 100) -> None:
        self.clock = ManualClock(SystemClock().now())
        # Its silence is its own: the clock of decisions may jump without it.
        self.news = RevocationView(ManualClock())
        self.hear("set-1")
        self.authorizer = PolicyAuthorizer(channel, self.clock, self.news, cache_size=remember)

    def hear(self, version: str) -> None:
        """Hear which policies are asked now."""
        self.news.apply((), policy_set_version=version, snapshot=False)

    async def ask(self, tool: Tool | None = None, digest: str = "sha256:a", **caller: Any) -> Decision:
        arguments = {"text": "hello"}
        resources = () if tool is None or tool.resources is None else tool.resources(arguments)
        question = Question("invocation-1", arguments, digest, resources=resources)
        return await self.authorizer.decide(tool or a_tool(), a_caller(**caller), question)


@pytest.fixture
async def asking(authz: AuthzPeer, reach: Callable[..., Any]) -> Asking:
    return Asking(await reach("authz", authz.address))


async def test_a_check_carries_all_attributes_of_the_call(asking: Asking, authz: AuthzPeer) -> None:
    tool = a_tool(
        tags=("t",),
        required_permissions=("net:x",),
        approval_always=True,
        impact_scope=3,
        closed_world=True,
        trust=ToolTrust(70, asking.clock.now().timestamp() - 7300, "beta", publisher_verified=True),
        health="degraded",
        result_labels=("secret",),
        resources=lambda arguments: (f"word:{arguments['text']}",),
    )
    decision = await asking.ask(tool)
    assert decision.verdict is Verdict.ALLOW
    assert (decision.policies, decision.policy_set_version) == (("policy0",), "set-1")
    [facts] = authz.asked
    assert (facts.tool_version, facts.tool_digest, facts.mutation_class) == (tool.name, tool.digest, "read_only")
    assert (list(facts.required_scopes), list(facts.required_permissions)) == (["tools:call"], ["net:x"])
    assert (list(facts.tags), facts.approval_always, facts.impact_scope) == (["t"], True, 3)
    assert (facts.arguments_digest, facts.session_id, facts.invocation_id) == ("sha256:a", "session-1", "invocation-1")
    assert (facts.arguments, list(facts.resources)) == (b'{"text":"hello"}', ["word:hello"])
    assert (facts.closed_world, list(facts.result_labels)) == (True, ["secret"])
    assert (facts.tool_trust, facts.tool_trust_age_hours) == (70, 2)
    assert (facts.tool_stage, facts.publisher_verified) == ("beta", True)
    assert facts.tool_health == "degraded"


async def test_a_cached_decision_ends_with_the_trust_that_it_rests_on(asking: Asking, authz: AuthzPeer) -> None:
    for score in (70, 70, 40):
        await asking.ask(a_tool(trust=ToolTrust(score)))
    assert [facts.tool_trust for facts in authz.asked] == [70, 40]


async def test_a_cached_decision_ends_with_the_health_that_it_rests_on(asking: Asking, authz: AuthzPeer) -> None:
    for health in ("healthy", "healthy", "unavailable"):
        await asking.ask(a_tool(health=health))
    assert [facts.tool_health for facts in authz.asked] == ["healthy", "unavailable"]


async def test_a_check_carries_the_risk_from_hooks(asking: Asking, authz: AuthzPeer) -> None:
    await asking.authorizer.decide(a_tool(), a_caller(), Question("i", {}, "sha256:a", (("score", 80),)))
    assert dict(authz.asked[0].risk) == {"score": 80}


async def test_a_check_leaves_out_arguments_that_are_too_large(asking: Asking, authz: AuthzPeer) -> None:
    await asking.authorizer.decide(a_tool(), a_caller(), Question("i", {"text": "x" * MAX_ARGUMENTS}, "sha256:a"))
    assert authz.asked[0].arguments == b""


async def test_a_check_with_a_constrained_token_carries_larger_arguments(asking: Asking, authz: AuthzPeer) -> None:
    confined = a_caller(confined=Identity("did:web:a", "t", 4e9, resources=("file:*",)))
    large = Question("i", {"text": "x" * MAX_ARGUMENTS}, "sha256:a")
    await asking.authorizer.decide(a_tool(), confined, large)
    assert authz.asked[0].arguments == dump(large.arguments)


@pytest.mark.parametrize("named", [("x",) * 257, ("x" * 2049,)])
async def test_a_call_with_too_many_resources_is_refused(
    asking: Asking, authz: AuthzPeer, named: tuple[str, ...]
) -> None:
    with pytest.raises(MeshError) as caught:
        await asking.ask(a_tool(resources=lambda arguments: named))
    assert caught.value.reason is Reason.ARGUMENTS_INVALID
    assert authz.asked == []


async def test_a_decision_carries_its_spending_limits(asking: Asking, authz: AuthzPeer) -> None:
    limits = [
        dpb.Limit(bucket="limit:a", window=Duration(seconds=60), max_calls=0, max_concurrent=3, source="a"),
        dpb.Limit(
            bucket="token:t",
            max_cost_micros=9,
            max_running_time=Duration(seconds=1, nanos=500_000_000),
            expire_time=Timestamp(seconds=100),
            source="token:t",
        ),
    ]
    authz.answer = lambda facts: authz.allow(limits=limits, cost_micros=7)
    decision = await asking.ask()
    assert decision.limits == (
        SpendingLimit("limit:a", window=60, max_calls=0, max_concurrent=3, source="a"),
        SpendingLimit("token:t", max_cost_micros=9, max_running=1.5, expires_at=100, source="token:t"),
    )
    assert decision.cost_micros == 7


async def test_a_cacheable_decision_is_reused_until_it_expires(asking: Asking, authz: AuthzPeer) -> None:
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
async def test_another_cache_key_is_requested_again(asking: Asking, authz: AuthzPeer, other: dict[str, Any]) -> None:
    await asking.ask()
    await asking.ask(**other)
    assert len(authz.asked) == 2


async def test_a_decision_that_is_not_cacheable_is_not_cached(asking: Asking, authz: AuthzPeer) -> None:
    authz.answer = lambda facts: authz.allow(cacheable=False)
    await asking.ask()
    await asking.ask()
    assert len(authz.asked) == 2


async def test_concurrent_equal_calls_share_one_request(asking: Asking, authz: AuthzPeer) -> None:
    authz.answering.clear()
    calls = [asyncio.ensure_future(asking.ask()) for _ in range(20)]
    await authz.arrived.wait()
    authz.answering.set()
    decisions = await asyncio.gather(*calls)
    assert len(authz.asked) == 1
    assert len({decision.name for decision in decisions}) == 1


async def test_a_waiter_of_an_uncacheable_decision_requests_its_own(asking: Asking, authz: AuthzPeer) -> None:
    authz.answer = lambda facts: authz.allow(cacheable=False)
    authz.answering.clear()
    calls = [asyncio.ensure_future(asking.ask(digest=f"sha256:{n}")) for n in range(3)]
    await authz.arrived.wait()
    authz.answering.set()
    decisions = await asyncio.gather(*calls)
    assert {facts.arguments_digest for facts in authz.asked} == {"sha256:0", "sha256:1", "sha256:2"}
    assert len({decision.name for decision in decisions}) == 3


async def test_a_canceled_call_does_not_cancel_the_shared_request(asking: Asking, authz: AuthzPeer) -> None:
    authz.answering.clear()
    first, second = asyncio.ensure_future(asking.ask()), asyncio.ensure_future(asking.ask())
    await authz.arrived.wait()
    first.cancel()
    authz.answering.set()
    assert (await second).verdict is Verdict.ALLOW
    assert first.cancelled() or (await asyncio.wait([first]))
    assert len(authz.asked) == 1


async def test_each_waiting_call_gets_its_own_error(asking: Asking, authz: AuthzPeer) -> None:
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


async def test_a_check_carries_the_token_and_a_reduced_deadline(asking: Asking, authz: AuthzPeer) -> None:
    enter(Call("/test", continue_trace(None), token="the-token", deadline=time.monotonic() + 3))
    await asking.ask()
    assert authz.metadata[0]["authorization"] == "Bearer the-token"
    assert authz.deadlines[0] < 3


async def test_a_waiter_requests_again_when_the_first_call_runs_out_of_time(asking: Asking, authz: AuthzPeer) -> None:
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
async def test_a_failed_check_is_an_error(asking: Asking, authz: AuthzPeer, failure: Reason, reason: Reason) -> None:
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


async def test_a_denial_names_the_argument_it_is_about(asking: Asking, authz: AuthzPeer) -> None:
    authz.answer = lambda facts: authz.deny(Reason.AUTHORITY_EXCEEDED, blocked_path="/amount")
    assert (await asking.ask()).blocked_path == "/amount"


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"deny": dpb.Deny()},
        {"deny": dpb.Deny(reason=1)},  # type: ignore[arg-type]
        {"allow": dpb.Allow(), "pending_classifier_check": True},
        {"allow": dpb.Allow(), "mode": dpb.DECISION_MODE_SHADOW},
    ],
)
async def test_every_decision_but_an_enforced_allow_denies(
    asking: Asking, authz: AuthzPeer, changes: dict[str, Any]
) -> None:
    authz.answer = lambda facts: authz.decision(**changes)
    decision = await asking.ask()
    assert (decision.verdict, decision.deny_reason) == (Verdict.DENY, Reason.PERMISSION_DENIED)


async def test_a_decision_that_needs_approval_names_the_approvers(asking: Asking, authz: AuthzPeer) -> None:
    needs = dpb.NeedsApproval(approver_groups=["ops"], quorum=2)
    authz.answer = lambda facts: authz.decision(needs_approval=needs)
    decision = await asking.ask()
    assert (decision.verdict, decision.approver_groups, decision.quorum) == (Verdict.NEEDS_APPROVAL, ("ops",), 2)


async def test_unknown_obligations_are_named_too(asking: Asking, authz: AuthzPeer) -> None:
    obligations = [
        dpb.Obligation(kind=dpb.OBLIGATION_KIND_CAP_ROWS, values=["10"]),
        dpb.Obligation(kind=99),  # type: ignore[arg-type]
        dpb.Obligation(),
    ]
    authz.answer = lambda facts: authz.allow(obligations=obligations, updated_input=b"{}")
    obligations = (await asking.ask()).obligations  # type: ignore[assignment]
    assert [(obligation.kind, obligation.values) for obligation in obligations] == [  # type: ignore[comparison-overlap]
        ("cap_rows", ("10",)),
        ("99", ()),
        ("unspecified", ()),
        ("updated_input", ()),
    ]


async def test_the_decision_cache_is_bounded(authz: AuthzPeer, reach: Callable[..., Any]) -> None:
    asking = Asking(await reach("authz", authz.address), remember=2)
    for token in ("t1", "t2", "t3", "t2", "t3", "t1"):
        await asking.ask(token_id=token)
    assert len(authz.asked) == 4


async def test_a_new_policy_set_clears_the_decision_cache(asking: Asking, authz: AuthzPeer) -> None:
    first = await asking.ask()
    asking.hear("set-2")
    authz.answer = lambda facts: authz.allow(policy_set_version="set-2")
    second = await asking.ask()
    assert second.name != first.name
    assert (await asking.ask()).name == second.name
    assert len(authz.asked) == 2


async def test_a_decision_of_a_replaced_policy_set_is_neither_used_nor_cached(asking: Asking, authz: AuthzPeer) -> None:
    """A replica that has yet to follow answers first; one that has followed answers then."""
    asking.hear("set-2")
    behind = iter([authz.allow(policy_set_version="set-1"), authz.allow(policy_set_version="set-1")])
    current = authz.deny(Reason.PERMISSION_DENIED, policy_set_version="set-2")
    authz.answer = lambda facts: next(behind, current)
    assert (await asking.ask()).verdict is Verdict.DENY
    assert len(authz.asked) == 3
    assert (await asking.ask()).verdict is Verdict.DENY
    assert len(authz.asked) == 3


async def test_waiting_for_a_replica_to_reload_its_policies_is_bounded(asking: Asking, authz: AuthzPeer) -> None:
    asking.hear("set-2")

    def behind(facts: Any) -> dpb.Decision:
        asking.clock.advance(0.5)
        return authz.allow(policy_set_version="set-1")

    authz.answer = behind
    with pytest.raises(MeshError) as caught:
        await asking.ask()
    assert caught.value.reason is Reason.SERVICE_UNAVAILABLE


async def test_a_decision_of_an_unknown_policy_set_is_used_and_not_cached(asking: Asking, authz: AuthzPeer) -> None:
    authz.answer = lambda facts: authz.allow(policy_set_version="set-2")
    await asking.ask()
    await asking.ask()
    assert len(authz.asked) == 2


async def test_the_decision_cache_is_not_used_while_the_policy_set_is_unknown(asking: Asking, authz: AuthzPeer) -> None:
    await asking.ask()
    asking.news.clock.advance(MAX_SILENCE + 0.1)  # type: ignore[attr-defined]
    await asking.ask()
    assert len(authz.asked) == 2
    asking.hear("set-1")
    await asking.ask()
    assert len(authz.asked) == 2
