"""`toolmesh tools trust` and its siblings."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.registry.v1 import trust_service_pb2 as pb
from toolmesh_sdk import Reason
from toolmesh_sdk.cli.commands.tools.attestations import Kind, Level
from toolmesh_sdk.cli.commands.tools.trust import Stage

from libs.common.errors import MeshError, Violation


@pytest.fixture
def scored(mesh: Any) -> None:
    components = [
        pb.TrustComponent(
            signal=pb.TRUST_SIGNAL_RELIABILITY, value=0.9, weight=0.25, contribution=0.225, facts={"calls": "10"}
        ),
        pb.TrustComponent(signal=pb.TRUST_SIGNAL_SECURITY_AUDIT, weight=0.15, missing="no security audit"),
    ]
    score = pb.TrustScore(
        tool="tools/core.echo",
        score=0.5,
        undecayed=1.0,
        decay=0.5,
        components=components,
        last_verified_time=Timestamp(seconds=1_800_000_000),
    )
    mesh.answer("GetTrustScore", pb.GetTrustScoreResponse(score=score, stage=pb.CONTRIBUTION_STAGE_BETA, revoked=True))
    gates = [pb.Gate(gate="security_audit", met=False, found="not audited")]
    mesh.answer(
        "GetStage",
        pb.GetStageResponse(stage=pb.CONTRIBUTION_STAGE_BETA, next=pb.CONTRIBUTION_STAGE_GA, gates=gates),
    )


@pytest.mark.usefixtures("scored")
def test_a_score_is_shown_signal_by_signal(toolmesh: Any, mesh: Any) -> None:
    lines = toolmesh("tools", "trust", "echo").stdout.splitlines()
    assert lines[0] == "core.echo  0.500  = 1.000 x 0.500 since 2027-01-15T08:00:00.000Z"
    assert lines[1:3] == ["revoked", "SIGNAL          VALUE  WEIGHT  ADDS    BECAUSE"]
    assert lines[3].split() == ["reliability", "0.900", "0.25", "0.2250", "calls", "10"]
    assert lines[4].endswith("no security audit")
    assert lines[5:7] == ["", "stage beta"]
    assert lines[7].split() == ["FOR", "GA", "MET", "FOUND"]
    assert lines[8].split() == ["security", "audit", "no", "not", "audited"]
    assert mesh.of("GetTrustScore")[0].metadata["authorization"]


@pytest.mark.usefixtures("scored")
def test_a_score_as_json_keeps_every_part(toolmesh: Any) -> None:
    shown = json.loads(toolmesh("tools", "trust", "echo", "--json").stdout)
    assert shown["score"]["components"][0]["facts"] == {"calls": "10"}
    assert (shown["stage"], shown["revoked"], shown["next_stage"]["next"]) == ("beta", True, "ga")


def test_a_rating_is_the_callers_own(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("RateTool", pb.RateToolResponse(average=3.5, ratings=2))
    assert toolmesh("tools", "rate", "echo@1.0.0", "4", "--comment", "good").stdout == (
        "3.5 of 5 on average; 2 ratings\n"
    )
    [call] = mesh.of("RateTool")
    assert (call.request.version, call.request.stars) == ("tools/core.echo/versions/1.0.0", 4)
    assert call.metadata["authorization"]
    for wrong in ("0", "6"):
        assert toolmesh("tools", "rate", "echo@1.0.0", wrong).exit_code == 2


def test_a_promotion_shows_the_stage_or_every_gate_that_is_not_met(toolmesh: Any, mesh: Any) -> None:
    unmet = [Violation("security_audit", "stage.ga", "not audited"), Violation("invocations", "stage.ga", "7 calls")]
    mesh.answer(
        "PromoteTool",
        pb.PromoteToolResponse(stage=pb.CONTRIBUTION_STAGE_BETA),
        MeshError(Reason.FAILED_PRECONDITION, violations=unmet),
    )
    assert toolmesh("tools", "promote", "echo").stdout == "echo is beta\n"
    refused = toolmesh("tools", "promote", "echo")
    assert refused.exit_code == 1
    assert {"security_audit", "invocations"} <= {line.split(":")[0].strip() for line in refused.stderr.splitlines()}


def test_a_verification_is_recorded_as_passed_or_failed(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("RecordVerification", pb.RecordVerificationResponse(fact_id="fact-1"))
    ran = toolmesh("tools", "verify", "echo@1.0.0", "integration_tests", "--evidence", "https://x", "--summary", "ran")
    assert ran.stdout == "core.echo@1.0.0 passed integration_tests  fact-1\n"
    assert "failed" in toolmesh("tools", "verify", "echo@1.0.0", "regression", "--failed").stdout
    first, second = mesh.of("RecordVerification")
    assert (first.request.version, first.request.passed) == ("tools/core.echo/versions/1.0.0", True)
    assert (first.request.evidence_url, first.request.summary) == ("https://x", "ran")
    assert (second.request.kind, second.request.passed) == (pb.VERIFICATION_KIND_REGRESSION, False)
    assert first.peer
    for wrong in (("echo", "regression"), ("echo@1.0.0", "everything")):
        assert toolmesh("tools", "verify", *wrong).exit_code == 2


def test_a_security_audit_is_recorded_with_who_made_it(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("RecordSecurityAudit", pb.RecordSecurityAuditResponse(fact_id="fact-2"))
    ran = toolmesh("tools", "audited", "echo@1.0.0", "third_party", "--auditor", "Acme", "--report", "https://x")
    assert ran.stdout == "core.echo@1.0.0 passed third_party security audit  fact-2\n"
    assert toolmesh("tools", "audited", "echo@1.0.0", "self_assessed", "--auditor", "us", "--failed").exit_code == 0
    first, second = mesh.of("RecordSecurityAudit")
    assert (first.request.version, first.request.auditor) == ("tools/core.echo/versions/1.0.0", "Acme")
    assert (first.request.level, first.request.passed) == (pb.AUDIT_LEVEL_THIRD_PARTY, True)
    assert (second.request.level, second.request.passed) == (pb.AUDIT_LEVEL_SELF_ASSESSED, False)
    assert first.peer
    for wrong in (("echo@1.0.0", "third_party"), ("echo@1.0.0", "nobody", "--auditor", "x")):
        assert toolmesh("tools", "audited", *wrong).exit_code == 2


def test_a_demotion_names_the_stage_and_says_why(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("DemoteTool", pb.DemoteToolResponse(stage=pb.CONTRIBUTION_STAGE_SANDBOX))
    assert toolmesh("tools", "demote", "echo", "sandbox", "--reason", "it fails").stdout == "echo is sandbox\n"
    [call] = mesh.of("DemoteTool")
    assert (call.request.to_stage, call.request.reason) == (pb.CONTRIBUTION_STAGE_SANDBOX, "it fails")
    assert toolmesh("tools", "demote", "echo", "sandbox").exit_code == 2


def test_every_enum_value_has_an_option_value() -> None:
    """All but the last stage, which is before none."""
    for words, enum, left_out in (
        (Kind, pb.VerificationKind, set()),
        (Level, pb.AuditLevel, set()),
        (Stage, pb.ContributionStage, {"verified"}),
    ):
        own = {name.lower() for name, number in enum.items() if number}
        assert set(words) == {name.split("_", 2)[2] for name in own} - left_out


def test_a_revocation_and_its_end_name_the_versions(toolmesh: Any, mesh: Any) -> None:
    names = ["tools/core.echo/versions/2.0.0", "tools/core.echo/versions/1.0.0"]
    mesh.answer("RevokeTool", pb.RevokeToolResponse(versions=names))
    mesh.answer("ReinstateTool", pb.ReinstateToolResponse())
    ran = toolmesh("tools", "revoke", "echo", "--reason", "it steals")
    assert ran.stdout == "echo is revoked: core.echo@2.0.0, core.echo@1.0.0\n"
    assert toolmesh("tools", "reinstate", "echo", "--reason", "fine").stdout.endswith("no version changed\n")
    assert toolmesh("tools", "revoke", "echo").exit_code == 2
    assert all(call.peer for call in [*mesh.of("RevokeTool"), *mesh.of("ReinstateTool")])
