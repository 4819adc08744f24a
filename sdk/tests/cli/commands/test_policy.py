"""`toolmesh policy`: what is asked of the mesh, by whom, and what is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.authz.v1 import policy_service_pb2 as pb
from toolmesh_sdk import Reason

from libs.common.errors import MeshError, Violation

TEXT = '@id("a")\n\tpermit (principal, action, resource) when { principal.nothing };\n'


def a_set(number: int = 2, *, active: bool = False, **texts: str) -> Any:
    documents = [pb.PolicyDocument(name=name.replace("_", "."), text=text) for name, text in texts.items()]
    return pb.PolicySet(
        name=f"policySets/{number}",
        version=f"sha256:{number}",
        documents=documents,
        policy_count=1,
        put_by="operator",
        put_time=Timestamp(seconds=1_800_000_000),
        active=active,
        comment="why",
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.cedar").write_text(TEXT)
    (tmp_path / "limits.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("not a document")
    return tmp_path


def test_a_folder_is_put_as_its_documents(toolmesh: Any, mesh: Any, folder: Path) -> None:
    mesh.answer("PutPolicy", pb.PutPolicyResponse(policy_set=a_set(a_cedar=TEXT, limits_json="{}")))
    ran = toolmesh("policy", "put", str(folder), "-m", "why", "--base", "1", "--remove", "old.cedar")
    assert (ran.exit_code, ran.stdout) == (0, "set 2: 1 policies in 2 documents  sha256:2\n")
    [call] = mesh.of("PutPolicy")
    assert {each.name: each.text for each in call.request.documents} == {"a.cedar": TEXT, "limits.json": "{}"}
    assert (call.request.base, call.request.comment, list(call.request.removed)) == (
        "policySets/1",
        "why",
        ["old.cedar"],
    )
    # With nothing but a local mesh, the operator's own certificate is the authority.
    assert call.peer
    assert "authorization" not in call.metadata


def test_a_document_is_put_byte_for_byte(toolmesh: Any, mesh: Any, tmp_path: Path) -> None:
    """What ends a line for Cedar and for hardly any reader is for the mesh to refuse; it must see it."""
    hidden = b"// harmless\rpermit (principal, action, resource);\r\n"
    (tmp_path / "hidden.cedar").write_bytes(hidden)
    mesh.answer("PutPolicy", pb.PutPolicyResponse(policy_set=a_set()))
    assert toolmesh("policy", "put", str(tmp_path / "hidden.cedar")).exit_code == 0
    assert mesh.of("PutPolicy")[0].request.documents[0].text.encode() == hidden


def test_a_set_is_shown_line_by_line_as_cedar_counts_them(toolmesh: Any, mesh: Any) -> None:
    text = "// one\N{LINE SEPARATOR}still one\r\n// two\n"
    mesh.answer("GetPolicySet", pb.GetPolicySetResponse(policy_set=a_set(a_cedar=text, b_cedar="// three")))
    shown = toolmesh("policy", "show").stdout.split("\n")[1:]
    assert shown == [
        "",
        "--- a.cedar",
        "// one\N{LINE SEPARATOR}still one",
        "// two",
        "",
        "--- b.cedar",
        "// three",
        "",
    ]


def test_as_many_sets_are_listed_as_were_asked_for(toolmesh: Any, mesh: Any) -> None:
    pages = [pb.ListPolicySetsResponse(policy_sets=[a_set(4), a_set(3)], next_page_token="p2")]
    pages.append(pb.ListPolicySetsResponse(policy_sets=[a_set(2), a_set(1)]))
    mesh.answer("ListPolicySets", *pages)
    listed = json.loads(toolmesh("policy", "list", "-n", "3", "--json").stdout)["policy_sets"]
    assert [each["name"] for each in listed] == ["policySets/4", "policySets/3", "policySets/2"]
    assert [call.request.page_token for call in mesh.of("ListPolicySets")] == ["", "p2"]


def test_an_empty_expected_set_is_a_usage_error(toolmesh: Any, mesh: Any) -> None:
    assert toolmesh("policy", "activate", "2", "--expect", "").exit_code == 2
    assert mesh.of("ActivatePolicySet") == []


def test_replacing_leaves_out_what_is_not_given(toolmesh: Any, mesh: Any, folder: Path) -> None:
    mesh.answer("GetPolicySet", pb.GetPolicySetResponse(policy_set=a_set(1, a_cedar="x", old_cedar="y")))
    mesh.answer("PutPolicy", pb.PutPolicyResponse(policy_set=a_set()))
    assert toolmesh("policy", "put", str(folder / "a.cedar"), "--replace").exit_code == 0
    assert list(mesh.of("PutPolicy")[0].request.removed) == ["old.cedar"]


def test_problems_are_shown_like_a_compiler_does(toolmesh: Any, mesh: Any, folder: Path) -> None:
    violations = [
        Violation("a.cedar:2:56", "type", "attribute `nothing` does not exist"),
        Violation("old.cedar:7:1", "syntax", "unexpected token"),
        Violation(":0:0", "size", "there are too many"),
    ]
    mesh.answer("PutPolicy", MeshError(Reason.POLICY_INVALID, violations=violations))
    ran = toolmesh("policy", "put", str(folder))
    assert ran.exit_code == 1
    line = TEXT.splitlines()[1].expandtabs(1)
    assert ran.stderr.splitlines() == [
        f"{folder}/a.cedar:2:56: attribute `nothing` does not exist [type]",
        f"    {line}",
        "    " + " " * 55 + "^",
        "old.cedar:7:1: unexpected token [syntax]",
        "the set: there are too many [size]",
        "3 problems; nothing was stored.",
    ]
    assert line[55:].startswith("nothing")
    asked = toolmesh("policy", "put", str(folder), "--json")
    assert json.loads(asked.stdout)["error"]["reason"] == "POLICY_INVALID"


def test_validation_says_what_is_wrong_and_fails(toolmesh: Any, mesh: Any, folder: Path) -> None:
    problem = pb.PolicyProblem(document="a.cedar", line=1, column=1, policy="a", rule="annotation", message="no reason")
    mesh.answer("ValidatePolicy", pb.ValidatePolicyResponse(problems=[problem]))
    ran = toolmesh("policy", "validate", str(folder / "a.cedar"))
    assert ran.exit_code == 1
    assert ran.stderr.splitlines()[:3] == [f"{folder}/a.cedar:1:1: no reason [annotation]", '    @id("a")', "    ^"]
    machine = toolmesh("policy", "validate", str(folder / "a.cedar"), "--json")
    assert (machine.exit_code, json.loads(machine.stdout)["problems"][0]["line"]) == (1, 1)
    mesh.answer("ValidatePolicy", pb.ValidatePolicyResponse())
    assert toolmesh("policy", "validate", str(folder / "a.cedar")).exit_code == 0


@pytest.mark.parametrize("given", [["no/such.cedar"], ["."], []])
def test_what_cannot_be_read_is_wrong_usage(
    toolmesh: Any, mesh: Any, given: list[str], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert toolmesh("policy", "put", *given).exit_code == 2
    assert mesh.seen == []


def test_the_same_name_twice_is_wrong_usage(toolmesh: Any, mesh: Any, folder: Path) -> None:
    (folder / "b").mkdir()
    (folder / "b" / "a.cedar").write_text("")
    assert toolmesh("policy", "put", str(folder), str(folder / "b")).exit_code == 2


def test_activation_says_what_changes_and_expects_what_it_showed(toolmesh: Any, mesh: Any) -> None:
    before, after = (
        a_set(1, active=True, a_cedar="one\ntwo\n", b_cedar="same\n"),
        a_set(2, a_cedar="one\n-- three\n", b_cedar="same\n"),
    )
    mesh.answer(
        "GetPolicySet",
        lambda request: pb.GetPolicySetResponse(policy_set=before if request.name.endswith("active") else after),
    )
    mesh.answer("ActivatePolicySet", pb.ActivatePolicySetResponse(policy_set=a_set(2, active=True)))
    ran = toolmesh("policy", "activate", "2")
    assert ran.stdout.splitlines() == ["set 2 is active; before it was set 1", "    a.cedar", "  - two", "  + -- three"]
    request = mesh.of("ActivatePolicySet")[0].request
    assert (request.name, request.expected_active) == ("policySets/2", "policySets/1")
    toolmesh("policy", "activate", "2", "--expect", "7")
    assert mesh.of("ActivatePolicySet")[1].request.expected_active == "policySets/7"


def test_going_back_says_what_changes(toolmesh: Any, mesh: Any) -> None:
    now, then = a_set(3, active=True, a_cedar="new\n"), a_set(2, a_cedar="old\n")
    mesh.answer(
        "GetPolicySet", lambda request: pb.GetPolicySetResponse(policy_set=now if "active" in request.name else then)
    )
    mesh.answer("RollbackPolicySet", pb.RollbackPolicySetResponse(policy_set=a_set(2, active=True)))
    ran = toolmesh("policy", "rollback")
    assert ran.stdout.splitlines() == ["set 2 is active; before it was set 3", "    a.cedar", "  - new", "  + old"]
    assert mesh.of("RollbackPolicySet")[0].request.expected_active == "policySets/3"


def test_sets_are_listed_and_shown(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("ListPolicySets", pb.ListPolicySetsResponse(policy_sets=[a_set(2), a_set(1, active=True)]))
    lines = toolmesh("policy", "list").stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["2", "1"], ["1", "active"]]
    mesh.answer("GetPolicySet", pb.GetPolicySetResponse(policy_set=a_set(1, active=True, a_cedar=TEXT)))
    shown = toolmesh("policy", "show").stdout
    assert "--- a.cedar" in shown
    assert "principal.nothing" in shown
    assert mesh.of("GetPolicySet")[0].request.name == "policySets/active"
    assert json.loads(toolmesh("policy", "show", "1", "--json").stdout)["policy_set"]["version"] == "sha256:1"


def test_a_replay_shows_the_flips(toolmesh: Any, mesh: Any) -> None:
    flip = pb.Flip(
        decision="decisions/d1",
        subject="did:web:a",
        tool_version="tools/core.pay/versions/1.0.0",
        before="allow",
        after="deny",
        determining_policies=["no-money"],
    )
    progress = [
        pb.ReplayPolicySetResponse(total=3),
        pb.ReplayPolicySetResponse(replayed=2, total=3, flips=[flip]),
        pb.ReplayPolicySetResponse(replayed=3, total=3, undecidable=1),
    ]
    mesh.answer("ReplayPolicySet", progress)
    ran = toolmesh("policy", "replay", "2", "-n", "3")
    assert ran.stdout.splitlines()[1].split() == ["d1", "did:web:a", "core.pay@1.0.0", "allow", "deny", "no-money"]
    assert "3 decisions replayed, 1 would flip, 1 cannot be replayed" in ran.stderr
    assert (mesh.of("ReplayPolicySet")[0].request.name, mesh.of("ReplayPolicySet")[0].request.decisions) == (
        "policySets/2",
        3,
    )
    machine = json.loads(toolmesh("policy", "replay", "2", "--json").stdout)
    assert (machine["replayed"], machine["undecidable"], len(machine["flips"])) == (3, 1, 1)


def test_a_replay_that_fails_fails(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("ReplayPolicySet", [pb.ReplayPolicySetResponse(total=3), MeshError(Reason.NOT_FOUND)])
    ran = toolmesh("policy", "replay", "9")
    assert ran.exit_code == 1
    assert "NOT_FOUND" in ran.stderr


def test_an_explanation_is_readable(toolmesh: Any, mesh: Any) -> None:
    findings = [
        pb.PolicyFinding(policy="quiet", effect="allow", document="a.cedar", line=1, reason="unused"),
        pb.PolicyFinding(policy="loud", effect="deny", matched=True, document="a.cedar", line=9, reason="Because."),
        pb.PolicyFinding(policy="broken", effect="deny", failed=True, document="b.cedar", line=2, reason="Sums."),
    ]
    answer = pb.ExplainDecisionResponse(summary="did:web:a was refused core.pay.\nBecause.", findings=findings)
    mesh.answer("ExplainDecision", answer)
    lines = toolmesh("policy", "explain", "d1").stdout.splitlines()
    assert lines[:2] == ["did:web:a was refused core.pay.", "Because."]
    assert [line.split() for line in lines[2:]] == [
        ["matched", "deny", "loud", "a.cedar:9"],
        ["Because."],
        ["failed", "deny", "broken", "b.cedar:2"],
        ["Sums."],
        ["-", "allow", "quiet", "a.cedar:1"],
    ]
    assert mesh.of("ExplainDecision")[0].request.name == "decisions/d1"
    assert toolmesh("policy", "explain", "decisions/d1", "--json").exit_code == 0


def test_a_token_goes_through_the_edge(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("ListPolicySets", pb.ListPolicySetsResponse())
    toolmesh("policy", "list", "--token", "t0")
    assert mesh.of("ListPolicySets")[0].metadata["authorization"] == "Bearer t0"
