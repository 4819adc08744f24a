"""`toolmesh policy ask` and `test`: the questions that are sent, and how answers are compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from toolmesh.authz.v1 import authz_service_pb2 as authz_pb
from toolmesh.authz.v1 import policy_service_pb2 as pb
from toolmesh.registry.v1 import registry_service_pb2 as registry_pb

from sdk.tests.cli.inputs.test_tool_facts import version

ALICE = "did:web:example.com:alice"


def answered(*outcomes: str) -> pb.AskPolicySetResponse:
    return pb.AskPolicySetResponse(
        answers=[
            pb.PolicyAnswer(outcome=one, reasons=["because"], determining_policies=[f"{one}-rule"]) for one in outcomes
        ]
    )


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    path = tmp_path / "cases.yaml"
    path.write_text(
        f"""
cases:
  - {{name: first, subject: "{ALICE}", tool: acme.find, arguments: {{n: 1}}, expect: allow, by: allow-rule}}
  - {{name: second, subject: "{ALICE}", tool: acme.pay@2.0.0, time: 2026-01-05T03:00:00Z, labels: [pii],
     facts: {{mutation_class: write_reversible, trust: 7, risk: {{score: 3}}}}, expect: deny}}
"""
    )
    return path


def test_a_question_is_asked_and_its_answer_shown(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("ResolveTool", registry_pb.ResolveToolResponse(version=version()))
    mesh.answer("AskPolicySet", answered("needs_approval"))
    options = ("--agent", "did:web:example.com:bot", "--labels", "pii", "--wildcard", "--fact", "trust=7", "--set", "2")
    arguments = ("--sub", ALICE, "--tool", "acme.find@^1", "--arguments", '{"n": 1}', *options)
    ran = toolmesh("policy", "ask", *arguments)
    assert (ran.exit_code, ran.stdout.splitlines()) == (0, ["needs approval  needs_approval-rule", "  because"])
    [call] = mesh.of("AskPolicySet")
    [question] = call.request.questions
    assert call.request.base == "policySets/2"
    assert (question.subject.subject, question.subject.on_behalf_of) == ("did:web:example.com:bot", ALICE)
    assert question.subject.kind == authz_pb.PRINCIPAL_KIND_AGENT
    assert (question.call.arguments, question.call.tool_trust, question.call.tool_stage) == (b'{"n": 1}', 7, "beta")
    assert (list(question.session_labels), question.granted_by_wildcard) == (["pii"], True)


def test_cases_pass_or_fail_one_by_one(toolmesh: Any, mesh: Any, cases: Path) -> None:
    mesh.answer("ResolveTool", registry_pb.ResolveToolResponse(version=version()))
    mesh.answer("AskPolicySet", answered("allow", "allow"))
    ran = toolmesh("policy", "test", str(cases))
    assert ran.exit_code == 1
    assert ran.stdout.splitlines() == [
        "ok      1. first",
        "FAILED  2. second",
        "        expected deny, got allow: because",
        "2 cases, 1 failed",
    ]
    [call] = mesh.of("AskPolicySet")
    planned = call.request.questions[1]
    # The effect of the second tool is stated, so it was not looked up.
    assert len(mesh.of("ResolveTool")) == 1
    assert (planned.call.tool_version, dict(planned.call.risk)) == ("tools/acme.pay/versions/2.0.0", {"score": 3})
    assert planned.time.ToJsonString() == "2026-01-05T03:00:00Z"


def test_another_policy_than_the_expected_one_fails_a_case(toolmesh: Any, mesh: Any, cases: Path) -> None:
    mesh.answer("ResolveTool", registry_pb.ResolveToolResponse(version=version()))
    wrong = answered("allow", "deny")
    wrong.answers[0].determining_policies[0] = "another"
    mesh.answer("AskPolicySet", wrong)
    ran = toolmesh("policy", "test", str(cases), "--json")
    assert ran.exit_code == 1
    assert [row["passed"] for row in json.loads(ran.stdout)["cases"]] == [False, True]


def test_rules_are_sent_with_the_questions(toolmesh: Any, mesh: Any, cases: Path, tmp_path: Path) -> None:
    (tmp_path / "a.cedar").write_text("// a rule")
    mesh.answer("ResolveTool", registry_pb.ResolveToolResponse(version=version()))
    mesh.answer("AskPolicySet", answered("allow", "deny"))
    assert toolmesh("policy", "test", str(cases), "--rules", str(tmp_path), "--remove", "b.cedar").exit_code == 0
    request = mesh.of("AskPolicySet")[0].request
    assert [each.name for each in request.documents] == ["a.cedar"]
    assert list(request.removed) == ["b.cedar"]
