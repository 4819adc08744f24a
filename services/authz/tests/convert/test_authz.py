"""Conversion of decisions and explanations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from toolmesh.authz.v1 import authz_service_pb2 as pb
from toolmesh.authz.v1 import decision_pb2
from toolmesh.common.v1 import caller_pb2, error_reason_pb2

from libs.common.errors import MeshError, Reason
from services.authz.convert import authz as convert
from services.authz.convert import policies as convert_policies
from services.authz.convert import tokens as convert_tokens
from services.authz.domain.model import Allow, Decision, Deny, NeedsApproval, SuggestedUpdate, Verdict
from services.authz.domain.policies.model import Explanation, RecordedDecision
from services.authz.tests.adapters.cedar.test_engine import make_request
from services.authz.tests.conftest import call_in_question

NOW = datetime(2026, 1, 1, 12, 0, 0, 250_000, UTC)


def decision(outcome: Any, **fields: Any) -> decision_pb2.Decision:
    verdict = Verdict(outcome, ("why",), ("p1", "p2"), (SuggestedUpdate("scope", "a:b"),))
    made = Decision("decisions/1", verdict, "sha256:1", True, NOW, NOW + timedelta(seconds=60), **fields)
    return convert.decision_message(made)


def test_an_empty_allow_is_set_in_the_decision_message() -> None:
    assert decision(Allow()).WhichOneof("outcome") == "allow"


@pytest.mark.parametrize("reason", [Reason.TOOL_NOT_IN_TOKEN, Reason.SCOPE_MISSING, Reason.POLICY_ENGINE_ERROR])
def test_a_deny_carries_the_reason_of_the_error_table(reason: Reason) -> None:
    message = decision(Deny(reason))
    assert message.WhichOneof("outcome") == "deny"
    assert error_reason_pb2.ErrorReason.Name(message.deny.reason) == f"ERROR_REASON_{reason.name}"


def test_a_question_to_people_names_them() -> None:
    asked = decision(NeedsApproval(("a", "b"), 2, "p1")).needs_approval
    assert (list(asked.approver_groups), asked.quorum, asked.policy) == (["a", "b"], 2, "p1")


def test_a_decision_arrives_whole() -> None:
    message = decision(Allow())
    assert message.name == "decisions/1"
    assert (list(message.reasons), list(message.determining_policies)) == (["why"], ["p1", "p2"])
    assert (message.policy_set_version, message.source, message.cacheable) == ("sha256:1", "policy", True)
    assert message.mode == decision_pb2.DECISION_MODE_ENFORCE
    assert [(u.kind, u.value) for u in message.suggested_updates] == [("scope", "a:b")]
    assert message.decide_time.ToDatetime(UTC) == NOW
    assert message.expire_time.ToDatetime(UTC) == NOW + timedelta(seconds=60)


def test_a_price_arrives_also_without_limits() -> None:
    assert decision(Allow(), cost_micros=2000).cost_micros == 2000


def test_a_lifetime_that_is_not_given_differs_from_any_that_is() -> None:
    assert convert_tokens.token_request(pb.IssueTokenRequest()).lifetime is None
    given = pb.IssueTokenRequest(lifetime=Duration(seconds=1, nanos=500_000_000))
    assert convert_tokens.token_request(given).lifetime == 1.5


def test_a_token_of_an_older_issuer_can_still_be_shown() -> None:
    message = convert_tokens.claims_message(
        {"iss": "i", "sub": "s", "aud": "a", "jti": "1", "iat": 5.5, "exp": 9, "tools": [{"tool": "*"}]}
    )
    assert (message.issue_time.seconds, message.expire_time.seconds) == (5, 9)
    assert not message.HasField("not_before")
    assert message.tier == caller_pb2.CREDENTIAL_TIER_USER
    assert [grant.tool for grant in message.tools] == ["*"]


def test_a_call_about_no_semantic_version_is_an_invalid_request() -> None:
    facts = pb.CallFacts(**call_in_question(tool_version="tools/core.echo/versions/one"))
    with pytest.raises(MeshError) as caught:
        convert.call_facts(facts)
    assert caught.value.reason is Reason.INVALID_REQUEST


@pytest.mark.parametrize(
    ("name", "number"), [("policySets/12", 12), ("policySets/active", None), ("policySets/\u0663", None)]
)
def test_the_number_of_a_set_is_written_in_plain_digits(name: str, number: int | None) -> None:
    assert convert_policies.number_of(name) == number


@pytest.mark.parametrize(
    ("given", "kind", "behalf"),
    [
        ({}, pb.PRINCIPAL_KIND_USER, ""),
        ({"tier": "invocation"}, pb.PRINCIPAL_KIND_USER, ""),
        ({"tier": "invocation", "agent": "did:web:bot"}, pb.PRINCIPAL_KIND_AGENT, "did:web:a"),
        ({"tier": "service"}, pb.PRINCIPAL_KIND_SERVICE, ""),
    ],
)
def test_an_explanation_names_the_principal_of_the_policy_decision(
    given: dict[str, str], kind: int, behalf: str
) -> None:
    made = Decision("decisions/1", Verdict(Allow(), ()), "sha256:1", False, NOW, NOW)
    explanation = Explanation(RecordedDecision(made, make_request(**given), None), (), "")
    subject = convert_policies.explanation_message(explanation).subject
    assert (subject.kind, subject.on_behalf_of) == (kind, behalf)
