"""PolicyService over real mutual TLS, with a real database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc.aio
import pytest
from sqlalchemy import update
from toolmesh.authz.v1 import authz_service_pb2 as authz_pb
from toolmesh.authz.v1 import policy_service_pb2 as pb
from toolmesh.authz.v1 import policy_service_pb2_grpc as rpc
from toolmesh.authz.v1.capability_token_pb2 import ArgumentConstraint, ToolGrant

from libs.common import page_tokens
from libs.common.errors import Reason
from libs.common.rpc.error_size import LEFT_OUT
from libs.common.rpc.status import from_rpc_error
from libs.common.sql.engine import engine_for, transaction
from services.authz.adapters.postgres.tables import policy_documents
from services.authz.tests.conftest import ALICE, call_in_question
from services.authz.tests.policy_texts import ask, forbid, permit
from services.authz.tests.rpc.test_authz import refusal


def stub(mesh: Any, peer: str = "operator") -> Any:
    return rpc.PolicyServiceStub(mesh.channel(peer))


def document(text: str, name: str = "planted.cedar") -> pb.PolicyDocument:
    return pb.PolicyDocument(name=name, text=text)


async def put(mesh: Any, *policies: str, **changes: Any) -> pb.PolicySet:
    """Put policies in place of the shipped ones."""
    given = {"documents": [document("\n".join(policies))], "removed": ["default.cedar"], **changes}
    response = await stub(mesh).PutPolicy(pb.PutPolicyRequest(base="policySets/1", **given))
    return response.policy_set


async def activate(mesh: Any, found: pb.PolicySet, expected: str = "") -> pb.PolicySet:
    request = pb.ActivatePolicySetRequest(name=found.name, expected_active=expected)
    return (await stub(mesh).ActivatePolicySet(request)).policy_set


async def replay(mesh: Any, found: pb.PolicySet, decisions: int = 0) -> list[pb.ReplayPolicySetResponse]:
    call = stub(mesh).ReplayPolicySet(pb.ReplayPolicySetRequest(name=found.name, decisions=decisions))
    return [message async for message in call]


async def explain(mesh: Any, name: str, peer: str = "operator", token: str = "") -> pb.ExplainDecisionResponse:
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    return await stub(mesh, peer).ExplainDecision(pb.ExplainDecisionRequest(name=name), metadata=metadata)


def outcome(decision: Any) -> str:
    return str(decision.WhichOneof("outcome"))


async def test_authz_starts_with_the_shipped_policy_set(mesh: Any) -> None:
    found = (await stub(mesh).GetPolicySet(pb.GetPolicySetRequest(name="policySets/active"))).policy_set
    assert (found.name, found.active, found.put_by) == ("policySets/1", True, "authz")
    assert [each.name for each in found.documents] == ["default.cedar"]
    decision = await mesh.check((await mesh.mint()).token)
    assert decision.policy_set_version == found.version


async def test_a_stored_set_decides_only_after_its_activation(mesh: Any) -> None:
    token = (await mesh.mint()).token
    closed = await put(mesh, permit("open"), forbid("closed"), comment="close it")
    assert (closed.name, closed.active, closed.policy_count, closed.comment) == ("policySets/2", False, 2, "close it")
    assert outcome(await mesh.check(token)) == "allow"
    activated = await activate(mesh, closed, "policySets/1")
    assert activated.active
    decision = await mesh.check(token)
    assert (outcome(decision), decision.policy_set_version) == ("deny", closed.version)
    assert list(decision.determining_policies) == ["closed"]
    back = (await stub(mesh).RollbackPolicySet(pb.RollbackPolicySetRequest(expected_active=closed.name))).policy_set
    assert (back.name, back.active) == ("policySets/1", True)
    assert outcome(await mesh.check(token)) == "allow"


async def test_invalid_policies_are_refused_with_line_and_column_and_not_stored(mesh: Any) -> None:
    text = permit("a") + "\n" + permit("b", "principal.nothing")
    error = await refusal(put(mesh, text))
    assert error.reason is Reason.POLICY_INVALID
    (violation,) = error.violations
    assert violation.path.startswith("planted.cedar:2:")
    request = pb.ValidatePolicyRequest(documents=[document(text)], base="policySets/1", removed=["default.cedar"])
    (problem,) = (await stub(mesh).ValidatePolicy(request)).problems
    assert (problem.document, problem.line, problem.policy, problem.rule) == ("planted.cedar", 2, "b", "type")
    assert violation.path == f"planted.cedar:2:{problem.column}"
    assert len((await stub(mesh).ListPolicySets(pb.ListPolicySetsRequest())).policy_sets) == 1
    fine = pb.ValidatePolicyRequest(documents=[document(permit("fine"))])
    assert not (await stub(mesh).ValidatePolicy(fine)).problems


async def test_unknown_sets_and_decisions_are_not_found(mesh: Any) -> None:
    service = stub(mesh)
    for call in (
        service.GetPolicySet(pb.GetPolicySetRequest(name="policySets/7")),
        service.ActivatePolicySet(pb.ActivatePolicySetRequest(name="policySets/7")),
        service.PutPolicy(pb.PutPolicyRequest(base="policySets/7")),
        service.PutPolicy(pb.PutPolicyRequest(removed=["nothing.cedar"])),
        service.ExplainDecision(pb.ExplainDecisionRequest(name="decisions/none")),
    ):
        assert (await refusal(call)).reason is Reason.NOT_FOUND
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await replay(mesh, pb.PolicySet(name="policySets/7"))
    assert from_rpc_error(caught.value).reason is Reason.NOT_FOUND
    assert (
        await refusal(service.RollbackPolicySet(pb.RollbackPolicySetRequest()))
    ).reason is Reason.FAILED_PRECONDITION
    request = pb.ActivatePolicySetRequest(name="policySets/1", expected_active="policySets/9")
    assert (await refusal(service.ActivatePolicySet(request))).reason is Reason.FAILED_PRECONDITION


async def test_lists_come_in_pages(mesh: Any) -> None:
    for name in ("a", "b"):
        await put(mesh, permit(name))
    first = await stub(mesh).ListPolicySets(pb.ListPolicySetsRequest(page_size=2))
    second = await stub(mesh).ListPolicySets(pb.ListPolicySetsRequest(page_size=2, page_token=first.next_page_token))
    names = [each.name for page in (first, second) for each in page.policy_sets]
    assert names == ["policySets/3", "policySets/2", "policySets/1"]
    assert not second.next_page_token


async def test_a_refusal_about_an_argument_is_explained_by_its_name(mesh: Any) -> None:
    schema = b'{"properties":{"text":{"maxLength":3}}}'
    confined = (await mesh.mint(argument_constraints=[ArgumentConstraint(tool="core.echo", schema=schema)])).token
    decision = await mesh.check(confined, arguments=b'{"text":"long"}')
    assert (outcome(decision), decision.blocked_path) == ("deny", "/text")
    assert "/text" in (await explain(mesh, decision.name)).summary


async def test_callers_need_the_scope(mesh: Any) -> None:
    bare, reader = (await mesh.mint()).token, (await mesh.mint(scopes=["policies:read"])).token
    service = stub(mesh, "edge")

    def bearing(token: str) -> dict[str, Any]:
        return {"metadata": (("authorization", f"Bearer {token}"),)}

    listing, putting = pb.ListPolicySetsRequest(), pb.PutPolicyRequest(documents=[document(permit("p"))])
    assert (await refusal(service.ListPolicySets(listing, **bearing(bare)))).reason is Reason.SCOPE_MISSING
    assert (await service.ListPolicySets(listing, **bearing(reader))).policy_sets
    assert (await refusal(service.PutPolicy(putting, **bearing(reader)))).reason is Reason.SCOPE_MISSING
    admin = (await mesh.mint(scopes=["policies:admin"])).token
    assert (await service.PutPolicy(putting, **bearing(admin))).policy_set.put_by == ALICE


async def test_each_decision_is_made_by_one_set_while_sets_change(mesh: Any) -> None:
    """Each set gives its own answer for its own reason: a decision of two sets would show as a mixture."""
    token = (await mesh.mint()).token
    sets = [
        await put(mesh, permit("open-2")),
        await put(mesh, permit("open-3"), forbid("closed-3")),
        await put(mesh, permit("open-4"), ask("asking-4")),
    ]
    expected = {
        sets[0].version: ("allow", ["open-2"]),
        sets[1].version: ("deny", ["closed-3"]),
        sets[2].version: ("needs_approval", ["asking-4"]),
    }
    await activate(mesh, sets[0])
    seen: set[str] = set()

    async def checking() -> None:
        while len(seen) < 3:
            decision = await mesh.check(token)
            found = (outcome(decision), list(decision.determining_policies))
            assert found == expected[decision.policy_set_version]
            seen.add(decision.policy_set_version)

    async def switching() -> None:
        while len(seen) < 3:
            for each in sets:
                await activate(mesh, each)

    await asyncio.wait_for(asyncio.gather(switching(), *(checking() for _ in range(4))), 30)


async def test_a_submitted_tool_of_an_unknown_publisher_must_be_granted_by_name(mesh: Any) -> None:
    everything = (await mesh.mint()).token
    unknown = {"publisher_verified": False, "tool_stage": "submitted"}
    refused = await mesh.check(everything, **unknown)
    assert (outcome(refused), list(refused.determining_policies)) == (
        "deny",
        ["unknown-publishers-are-granted-by-name"],
    )
    request = authz_pb.FilterToolsRequest(tools=[authz_pb.CallFacts(**call_in_question(**unknown))])
    metadata = (("authorization", f"Bearer {everything}"),)
    assert (await mesh.stub("registry").FilterTools(request, metadata=metadata)).tools == [authz_pb.USABILITY_DENIED]
    for named in ("core.*", "core.echo", "echo", "c*.*"):
        token = (await mesh.mint(tools=[ToolGrant(tool=named)])).token
        assert outcome(await mesh.check(token, **unknown)) == "allow", named
    both = (await mesh.mint(tools=[ToolGrant(tool="*"), ToolGrant(tool="core.echo")])).token
    assert outcome(await mesh.check(both, **unknown)) == "allow"
    assert outcome(await mesh.check(everything, **unknown | {"publisher_verified": True})) == "allow"
    assert outcome(await mesh.check(everything, **unknown | {"tool_stage": "sandbox"})) == "allow"


async def test_labels_close_a_door_for_the_rest_of_the_session(mesh: Any) -> None:
    token = (await mesh.mint()).token
    sending = {"tags": ["external_send"], "session_id": "s1"}
    before = await mesh.check(token, **sending)
    assert (outcome(before), before.cacheable) == ("allow", False)
    reading = await mesh.check(token, result_labels=["confidential"], session_id="s1")
    assert (list(reading.added_labels), reading.cacheable) == (["confidential"], False)
    again = await mesh.check(token, result_labels=["confidential"], session_id="s1")
    assert (list(again.added_labels), again.cacheable) == ([], True)
    after = await mesh.check(token, **sending)
    assert (outcome(after), list(after.determining_policies)) == (
        "deny",
        ["nothing-leaves-after-confidential-reading"],
    )
    # Leaving the session does not help its holder, who chooses sessions; the reason says so, and what helps.
    left = await mesh.check(token, tags=["external_send"], session_id="s2")
    assert (outcome(left), list(left.determining_policies)) == ("deny", ["nothing-leaves-by-another-session"])
    # A token of the same subject that is bound to the other session has read nothing.
    bound = (await mesh.mint(session_id="s2")).token
    assert outcome(await mesh.check(bound, tags=["external_send"])) == "allow"
    assert outcome(await mesh.check((await mesh.mint(session_id="s1")).token, tags=["external_send"])) == "deny"
    other = (await mesh.mint()).token
    assert outcome(await mesh.check(other, tags=["external_send"], session_id="s2")) == "allow"
    assert outcome(await mesh.check(other, tags=["external_send"], session_id="s1")) == "deny"


async def test_an_explanation_shows_a_label_and_the_call_that_brought_it(mesh: Any) -> None:
    token = (await mesh.mint()).token
    reading = await mesh.check(
        token,
        result_labels=["confidential"],
        session_id="s1",
        invocation_id="i-read",
        tool_version="tools/core.read/versions/2.0.0",
    )
    refused = await mesh.check(token, tags=["external_send"], session_id="s1")
    found = await explain(mesh, refused.name)
    [source] = found.label_sources
    assert (source.label, source.decision, source.invocation_id) == ("confidential", reading.name, "i-read")
    assert (source.tool_version, source.other_session) == ("tools/core.read/versions/2.0.0", False)
    assert list(found.session_labels) == ["confidential"]
    assert reading.name in found.summary
    elsewhere = await mesh.check(token, tags=["external_send"], session_id="s2")
    found = await explain(mesh, elsewhere.name)
    [source] = found.label_sources
    assert (source.invocation_id, source.other_session, list(found.session_labels)) == ("i-read", True, [])
    assert not (await explain(mesh, reading.name)).label_sources


async def test_a_policy_removes_a_label_and_the_decision_says_so(mesh: Any) -> None:
    clearing = '@clear_label("confidential") ' + permit("reviewed", 'resource.tags.contains("review")')
    await activate(mesh, await put(mesh, clearing, removed=[]))
    token = (await mesh.mint()).token
    sending = {"tags": ["external_send"], "session_id": "s1"}
    labeled = {"result_labels": ["confidential"], "session_id": "s1"}
    assert list((await mesh.check(token, **labeled)).added_labels) == ["confidential"]
    # Not reused, because the label may be removed meanwhile.
    assert not (await mesh.check(token, **labeled)).cacheable
    assert outcome(await mesh.check(token, **sending)) == "deny"
    review = await mesh.check(token, tags=["review"], session_id="s1")
    assert (outcome(review), list(review.cleared_labels), review.cacheable) == ("allow", ["confidential"], False)
    assert list((await explain(mesh, review.name)).decision.cleared_labels) == ["confidential"]
    assert outcome(await mesh.check(token, **sending)) == "allow"
    # The next reading brings it back.
    assert list((await mesh.check(token, **labeled)).added_labels) == ["confidential"]
    assert outcome(await mesh.check(token, **sending)) == "deny"


async def test_an_approved_call_labels_its_session_too(mesh: Any) -> None:
    token = (await mesh.mint()).token
    reading = await mesh.check(token, result_labels=["confidential"], approval_always=True, session_id="s1")
    assert (outcome(reading), list(reading.added_labels)) == ("needs_approval", ["confidential"])
    assert outcome(await mesh.check(token, tags=["external_send"], session_id="s1")) == "deny"


async def test_obligations_and_labels_of_policies_are_in_the_decision(mesh: Any) -> None:
    notes = '@redact("/card") @cap_rows("10") @sandbox_tier("2") @label("pii") '
    stricter = '@redact("/name") @cap_rows("5") @sandbox_tier("1") '
    await activate(mesh, await put(mesh, notes + permit("a"), stricter + permit("b")))
    decision = await mesh.check((await mesh.mint()).token)
    assert {(each.kind, tuple(each.values)) for each in decision.obligations} == {
        (1, ("/card", "/name")),
        (2, ("5",)),
        (3, ("2",)),
    }
    assert list(decision.added_labels) == ["pii"]


async def test_policies_read_the_arguments_of_a_check(mesh: Any) -> None:
    bounded = forbid(
        "not-too-much",
        'context.arguments.number.hasTag("/amount") && context.arguments.number.getTag("/amount") > 1000',
    )
    await activate(mesh, await put(mesh, permit("open"), bounded))
    token = (await mesh.mint()).token
    for arguments, expected in {
        b'{"amount": 1000}': "allow",
        b'{"amount": 1000.5}': "deny",
        b'{"amount": 1e300}': "deny",
        b'{"amount": -5}': "allow",
        b"": "deny",
    }.items():
        decision = await mesh.check(token, arguments=arguments)
        assert (arguments, outcome(decision)) == (arguments, expected)
        assert not decision.cacheable


async def test_a_decision_explains_itself_also_after_its_set_is_gone(mesh: Any) -> None:
    token = (await mesh.mint(trust_level=10)).token
    decision = await mesh.check(token, mutation_class="write_reversible", tags=["x"])
    await activate(mesh, await put(mesh, permit("other")))
    found = await explain(mesh, decision.name)
    assert found.decision.name == decision.name
    assert found.decision.determining_policies == decision.determining_policies
    matched = {each.policy for each in found.findings if each.matched}
    assert matched == {"covered-calls-may-run", "writes-of-little-trusted-callers-need-a-person"}
    assert len(found.findings) == 12
    assert all(each.document == "default.cedar" and each.line > 1 for each in found.findings)
    assert (found.subject.subject, found.subject.trust_level, found.environment) == (ALICE, 10, "local")
    assert (found.call.mutation_class, list(found.call.tags)) == ("write_reversible", ["x"])
    assert found.summary


async def test_a_failed_policy_is_named_in_the_explanation(mesh: Any) -> None:
    erring = forbid("erring", "principal.trust_level * 9223372036854775807 > 0")
    await activate(mesh, await put(mesh, permit("open"), erring))
    decision = await mesh.check((await mesh.mint(trust_level=60)).token)
    assert outcome(decision) == "deny"
    findings = (await explain(mesh, decision.name)).findings
    assert [(each.policy, each.matched, each.failed) for each in findings] == [
        ("open", True, False),
        ("erring", False, True),
    ]


async def test_callers_explain_their_own_decisions_and_no_others(mesh: Any) -> None:
    own = (await mesh.mint()).token
    decision = await mesh.check(own)
    assert (await explain(mesh, decision.name, "edge", own)).decision.name == decision.name
    stranger = (await mesh.mint(subject="did:web:toolmesh.local:users:mallory")).token
    assert (await refusal(explain(mesh, decision.name, "edge", stranger))).reason is Reason.NOT_FOUND
    auditor = (await mesh.mint(subject="did:web:toolmesh.local:users:audit", scopes=["policies:read"])).token
    assert (await explain(mesh, decision.name, "edge", auditor)).decision.name == decision.name


async def test_a_decision_of_the_token_alone_says_so(mesh: Any) -> None:
    decision = await mesh.check((await mesh.mint(tools=[], scopes=["a"])).token)
    found = await explain(mesh, decision.name)
    assert (outcome(found.decision), list(found.findings)) == ("deny", [])


async def test_a_replay_finds_exactly_the_decisions_that_flip(mesh: Any) -> None:
    token = (await mesh.mint(trust_level=60)).token
    made = {}
    for index in range(30):
        tags = ["money"] if index % 7 == 3 else []
        decision = await mesh.check(token, tool_version=f"tools/core.t{index}/versions/1.0.0", tags=tags)
        made[decision.name] = bool(tags)
    refused = await mesh.check((await mesh.mint(tools=[], scopes=["a"])).token)
    candidate = await put(mesh, permit("open"), forbid("no-money", 'resource.tags.contains("money")'))
    messages = await replay(mesh, candidate)
    assert (messages[0].replayed, messages[0].total) == (0, 31)
    assert (messages[-1].replayed, messages[-1].total, messages[-1].undecidable) == (31, 31, 0)
    flips = [flip for message in messages for flip in message.flips]
    assert {flip.decision for flip in flips} == {name for name, money in made.items() if money}
    assert refused.name not in {flip.decision for flip in flips}
    assert {(flip.before, flip.after, tuple(flip.determining_policies)) for flip in flips} == {
        ("allow", "deny", ("no-money",))
    }
    assert all(flip.subject == ALICE for flip in flips)
    assert (await replay(mesh, candidate, 5))[-1].replayed == 5
    # Nothing was changed by it.
    assert (await replay(mesh, candidate))[-1].replayed == 31


async def test_decisions_without_stored_arguments_are_undecidable_in_a_replay(mesh: Any) -> None:
    token = (await mesh.mint()).token
    await mesh.check(token, arguments=b'{"x": 1}')
    await mesh.check(token, tags=["external_send"])
    reading = await put(mesh, permit("open"), forbid("x", 'context.arguments.facts.contains("/x=1")'))
    assert (await replay(mesh, reading))[-1].undecidable == 2
    certain = await put(
        mesh,
        forbid("x", 'context.arguments.facts.contains("/x=1")'),
        forbid("core", 'resource.namespace == "core"'),
    )
    # A forbid that reads neither decides without the arguments.
    assert (await replay(mesh, certain))[-1].undecidable == 0
    assert len([flip for message in await replay(mesh, certain) for flip in message.flips]) == 2
    labels = await put(mesh, permit("open"), forbid("l", 'context.session_labels.contains("a")'))
    # The labels of a session are known, whether a policy read them or not.
    assert (await replay(mesh, labels))[-1].undecidable == 0


async def test_a_replay_denies_missing_arguments_like_a_check(mesh: Any) -> None:
    await mesh.check((token := (await mesh.mint()).token), arguments_digest="sha256:good")
    reading = await put(mesh, permit("open"), forbid("known", 'context.arguments_digest == "sha256:bad"'))
    await activate(mesh, reading)
    # Without arguments the policy cannot be evaluated.
    assert outcome(await mesh.check(token)) == "deny"
    assert [flip for message in await replay(mesh, reading) for flip in message.flips] == []


async def test_the_other_replica_stops_allowing(start: Callable[..., Any], mesh: Any) -> None:
    other = await start(TOOLMESH_DATABASE_URL=mesh.database_url)
    token = (await mesh.mint()).token
    assert outcome(await other.check(token)) == "allow"
    await activate(mesh, await put(mesh, permit("open"), forbid("closed")))

    async def until_refused() -> None:
        while outcome(await other.check(token)) == "allow":
            continue

    await asyncio.wait_for(until_refused(), 60.0)


async def test_many_problems_arrive_as_far_as_an_answer_carries_them(mesh: Any) -> None:
    text = "\n".join(permit(f"p{index}", f"principal.nothing{index}") for index in range(300))
    error = await refusal(put(mesh, text))
    assert error.reason is Reason.POLICY_INVALID
    assert error.violations[0].path.startswith("planted.cedar:1:")
    request = pb.ValidatePolicyRequest(documents=[document(text)], base="policySets/1")
    assert len((await stub(mesh).ValidatePolicy(request)).problems) == 100


async def test_what_no_row_can_hold_is_the_askers_mistake(mesh: Any) -> None:
    beyond = "policySets/99999999999999999999"
    odd = document(permit("a"))
    for asking in (
        stub(mesh).GetPolicySet(pb.GetPolicySetRequest(name=beyond)),
        stub(mesh).ActivatePolicySet(pb.ActivatePolicySetRequest(name=beyond)),
        stub(mesh).PutPolicy(pb.PutPolicyRequest(documents=[odd], comment="a\0b")),
    ):
        assert (await refusal(asking)).reason is Reason.INVALID_REQUEST
    place = page_tokens.encode("policySets", ["first"])
    asking = stub(mesh).ListPolicySets(pb.ListPolicySetsRequest(page_token=place))
    assert (await refusal(asking)).reason is Reason.PAGE_TOKEN_INVALID


async def test_an_unstorable_session_is_refused_and_does_not_block_the_journal(mesh: Any) -> None:
    token = (await mesh.mint()).token
    before = await mesh.check(token)
    assert (await refusal(mesh.check(token, session_id="a\0b"))).reason is Reason.INVALID_REQUEST
    after = await mesh.check(token)
    for decision in (before, after):
        assert (await explain(mesh, decision.name)).decision.name == decision.name


async def test_however_much_is_wrong_the_refusal_says_so_and_validation_lists_it(mesh: Any) -> None:
    documents = [document("\n".join(permit("p" * 120) for _ in range(101)))]
    error = await refusal(stub(mesh).PutPolicy(pb.PutPolicyRequest(documents=documents)))
    assert error.reason is Reason.POLICY_INVALID
    assert len(error.violations) + int(error.metadata[LEFT_OUT]) == 100
    found = await stub(mesh).ValidatePolicy(pb.ValidatePolicyRequest(documents=documents))
    assert len(found.problems) == 100


async def test_going_back_to_a_set_that_cannot_be_used_any_more_changes_nothing(
    start: Callable[..., Any], mesh: Any
) -> None:
    old, new = await put(mesh, permit("old")), await put(mesh, permit("new"))
    await activate(mesh, old)
    await activate(mesh, new)
    # As another schema would leave it behind.
    engine = engine_for(mesh.database_url, schema="authz")
    async with transaction(engine) as connection:
        spoilt = update(policy_documents).where(policy_documents.c.set_number == int(old.name.split("/")[1]))
        await connection.execute(spoilt.values(text=permit("old", "principal.gone")))
    await engine.dispose()
    other = await start(TOOLMESH_DATABASE_URL=mesh.database_url)
    for asking in (
        stub(other).RollbackPolicySet(pb.RollbackPolicySetRequest()),
        stub(other).ActivatePolicySet(pb.ActivatePolicySetRequest(name=old.name)),
    ):
        assert (await refusal(asking)).reason is Reason.POLICY_INVALID
    active = (await stub(other).GetPolicySet(pb.GetPolicySetRequest(name="policySets/active"))).policy_set
    assert active.name == new.name
    assert outcome(await other.check((await other.mint()).token)) == "allow"
