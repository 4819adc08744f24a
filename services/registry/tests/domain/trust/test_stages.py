"""The gates of contribution stages."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from libs.common.errors import Reason
from libs.common.tool_names import ToolName
from services.registry.domain.trust.facts import Audit, AuditLevel, Facts, Verification, VerificationKind
from services.registry.domain.trust.stages import Stage, gates_of, gates_unmet
from services.registry.domain.trust.usage import Usage

NOW = datetime(2026, 6, 1, tzinfo=UTC)
TOOL = ToolName("acme", "tool")
KINDS = VerificationKind


def facts(*kinds: VerificationKind, usage: Usage | None = None, audits: tuple[AuditLevel, ...] = ()) -> Facts:
    return Facts(
        NOW,
        usage,
        audits={level: Audit(TOOL, "1.0.0", level, True, "somebody", NOW) for level in audits},
        verifications={kind: Verification(TOOL, "1.0.0", kind, True, NOW) for kind in kinds},
    )


WELL = Usage(10_000, 10_000)
EVERYTHING = facts(*KINDS, usage=WELL, audits=tuple(AuditLevel))
NEEDED = {
    Stage.SANDBOX: {"schema_validation", "sandbox_deployment"},
    Stage.BETA: {"integration_tests", "invocations"},
    Stage.GA: {"security_audit", "invocations"},
    Stage.VERIFIED: {"third_party_audit", "sla_commitment", "provider_identity"},
}


def missing(stage: Stage, found: Facts | None) -> set[str]:
    return {gate.gate for gate in gates_of(stage, found) if not gate.met}


def test_the_stages_follow_each_other() -> None:
    walked, stage = [Stage.SUBMITTED], Stage.SUBMITTED
    while stage.next is not None:
        assert stage.is_before(stage.next)
        assert not stage.next.is_before(stage)
        stage = stage.next
        walked.append(stage)
    assert walked == list(Stage)


@pytest.mark.parametrize("stage", NEEDED)
def test_a_stage_asks_for_exactly_its_gates(stage: Stage) -> None:
    assert {gate.gate for gate in gates_of(stage, EVERYTHING)} == NEEDED[stage]
    assert missing(stage, EVERYTHING) == set()
    assert missing(stage, facts()) == NEEDED[stage] - {"schema_validation"}
    assert missing(stage, None) == {"schema_validation"}


@pytest.mark.parametrize(
    ("stage", "usage", "met"),
    [
        (Stage.BETA, Usage(100, 95), True),
        (Stage.BETA, Usage(99, 99), False),
        (Stage.BETA, Usage(100, 94), False),
        (Stage.BETA, None, False),
        (Stage.GA, Usage(1000, 990), True),
        (Stage.GA, Usage(999, 999), False),
        (Stage.GA, Usage(1000, 989), False),
        (Stage.GA, None, False),
    ],
)
def test_calls_and_their_success_open_a_gate(stage: Stage, usage: Usage | None, met: bool) -> None:
    found = replace(EVERYTHING, usage=usage)
    assert ("invocations" not in missing(stage, found)) is met


def test_a_third_party_audit_also_meets_the_audit_gate() -> None:
    assert missing(Stage.GA, facts(usage=WELL, audits=(AuditLevel.THIRD_PARTY,))) == set()
    assert "third_party_audit" in missing(Stage.VERIFIED, facts(*KINDS, audits=(AuditLevel.SELF_ASSESSED,)))


def test_what_failed_last_is_not_met() -> None:
    failed = {kind: Verification(TOOL, "1.0.0", kind, False, NOW) for kind in KINDS}
    audits = {AuditLevel.THIRD_PARTY: Audit(TOOL, "1.0.0", AuditLevel.THIRD_PARTY, False, "somebody", NOW)}
    found = replace(EVERYTHING, verifications=failed, audits=EVERYTHING.audits | audits)  # type: ignore[operator]
    assert missing(Stage.VERIFIED, found) == NEEDED[Stage.VERIFIED]
    assert "security_audit" in missing(Stage.GA, found)


def test_the_refusal_lists_every_gate_that_is_not_met() -> None:
    error = gates_unmet(Stage.VERIFIED, gates_of(Stage.VERIFIED, facts()))
    assert error.reason is Reason.FAILED_PRECONDITION
    assert {violation.path for violation in error.violations} == NEEDED[Stage.VERIFIED]
