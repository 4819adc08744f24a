"""What a set would decide about calls that are made up, over real mutual TLS; nothing of it is stored."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.authz.v1 import authz_service_pb2 as authz_pb
from toolmesh.authz.v1 import policy_service_pb2 as pb

from libs.common.errors import Reason
from services.authz.tests.conftest import ALICE, call_in_question
from services.authz.tests.policy_texts import ask, forbid, permit
from services.authz.tests.rpc.test_authz import refusal
from services.authz.tests.rpc.test_policies import document, outcome, put, replay, stub


def question(trust_level: int = 0, wildcard: bool = False, **changes: Any) -> pb.PolicyQuestion:
    about = {name: changes.pop(name) for name in ("session_labels", "environment", "time") if name in changes}
    return pb.PolicyQuestion(
        subject=authz_pb.SubjectFacts(subject=ALICE, kind=authz_pb.PRINCIPAL_KIND_USER, trust_level=trust_level),
        call=authz_pb.CallFacts(**call_in_question(**changes)),
        granted_by_wildcard=wildcard,
        **about,
    )


async def answers(mesh: Any, *questions: pb.PolicyQuestion, **request: Any) -> list[pb.PolicyAnswer]:
    asked = pb.AskPolicySetRequest(questions=questions, **request)
    return list((await stub(mesh).AskPolicySet(asked)).answers)


async def test_a_stored_set_answers_before_it_is_active(mesh: Any) -> None:
    candidate = await put(mesh, permit("open"), forbid("no-money", 'resource.tags.contains("money")'), ask("asked"))
    plain, money = question(), question(tags=["money"])
    [active] = await answers(mesh, money)
    assert active.outcome == "allow"
    found = await answers(mesh, plain, money, base=candidate.name)
    assert [(each.outcome, list(each.determining_policies)) for each in found] == [
        ("needs_approval", ["asked"]),
        ("deny", ["no-money"]),
    ]


async def test_documents_are_tried_without_being_stored(mesh: Any) -> None:
    closing = document(forbid("closed"))
    [tried] = await answers(mesh, question(), documents=[closing])
    assert (tried.outcome, list(tried.determining_policies), bool(tried.reasons[0])) == ("deny", ["closed"], True)
    [alone] = await answers(mesh, question(), documents=[document(permit("p", "false"))], removed=["default.cedar"])
    assert (alone.outcome, list(alone.determining_policies)) == ("deny", [])
    assert len((await stub(mesh).ListPolicySets(pb.ListPolicySetsRequest())).policy_sets) == 1
    assert outcome(await mesh.check((await mesh.mint()).token)) == "allow"
    # No decision was recorded by the questions.
    assert (await replay(mesh, pb.PolicySet(name="policySets/1")))[-1].replayed == 1


async def test_questions_state_all_that_a_policy_reads(mesh: Any) -> None:
    night = Timestamp()
    night.FromDatetime(datetime(2026, 1, 5, 3, tzinfo=UTC))
    rules = [
        forbid("night", "context.time.hour < 6"),
        forbid("prod", 'context.environment == "prod"'),
        forbid("labeled", 'context.session_labels.contains("pii")'),
        forbid("treasury", 'context.arguments.facts.contains("/to=treasury")'),
        forbid("trusted", "principal.trust_level > 90"),
        forbid("everything", "!context.granted_by_name"),
        '@label("seen") ' + permit("open"),
    ]
    day = Timestamp()
    day.FromDatetime(datetime(2026, 1, 5, 12, tzinfo=UTC))
    plain: dict[str, Any] = {"time": day, "arguments": b"{}"}
    asked = {
        "night": question(**plain | {"time": night}),
        "prod": question(**plain, environment="prod"),
        "labeled": question(**plain, session_labels=["pii"]),
        "treasury": question(**plain | {"arguments": b'{"to": "treasury"}'}),
        "trusted": question(95, **plain),
        "everything": question(wildcard=True, **plain),
        "open": question(**plain, result_labels=["own"]),
    }
    found = await answers(mesh, *asked.values(), documents=[document("\n".join(rules))], removed=["default.cedar"])
    assert {name: list(each.determining_policies) for name, each in zip(asked, found, strict=True)} == {
        name: [name] for name in asked
    }
    assert list(found[-1].added_labels) == ["own", "seen"]
    # What was not stated is unknown: a policy that reads it denies, as in a call.
    [unknown] = await answers(mesh, question(time=day), documents=[document("\n".join(rules))])
    assert (unknown.outcome, list(unknown.determining_policies)) == ("deny", [])


async def test_the_digest_of_given_arguments_is_known(mesh: Any) -> None:
    exact = 'context.arguments_digest == "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"'
    [found] = await answers(mesh, question(arguments=b" {} "), documents=[document(forbid("empty", exact))])
    assert (found.outcome, list(found.determining_policies)) == ("deny", ["empty"])


async def test_questions_are_refused_like_policies_are(mesh: Any) -> None:
    service = stub(mesh)
    missing = pb.AskPolicySetRequest(questions=[question()], base="policySets/9")
    assert (await refusal(service.AskPolicySet(missing))).reason is Reason.NOT_FOUND
    wrong = pb.AskPolicySetRequest(questions=[question()], documents=[document(permit("a", "principal.nothing"))])
    error = await refusal(service.AskPolicySet(wrong))
    assert (error.reason, error.violations[0].path.startswith("planted.cedar:1:")) == (Reason.POLICY_INVALID, True)
    broken = pb.AskPolicySetRequest(questions=[question(arguments=b"[")])
    assert (await refusal(service.AskPolicySet(broken))).reason is Reason.INVALID_JSON
    assert (await refusal(service.AskPolicySet(pb.AskPolicySetRequest()))).reason is Reason.INVALID_REQUEST
