"""Conversions of the trust service."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from toolmesh.registry.v1 import trust_service_pb2 as pb

from libs.common.call_context import Call
from libs.common.tool_names import ToolName
from services.registry.convert.registry import actor_of
from services.registry.convert.shared import timestamp
from services.registry.domain.lifecycle.transitions import ChangeRequest
from services.registry.domain.trust.compute_score import TrustScore
from services.registry.domain.trust.facts import Audit, AuditLevel, Fact, Verification, VerificationKind
from services.registry.domain.trust.promote_tool import StageProgress
from services.registry.domain.trust.score import Component
from services.registry.domain.trust.stages import Stage

Make = Callable[[ToolName, str, datetime], Fact]


def change_request_of(request: pb.RevokeToolRequest | pb.ReinstateToolRequest, call: Call) -> ChangeRequest:
    return ChangeRequest(actor_of(call), reason=request.reason)


def audit_of(request: pb.RecordSecurityAuditRequest, call: Call) -> Make:
    level = AuditLevel(pb.AuditLevel.Name(request.level).removeprefix("AUDIT_LEVEL_").lower())

    def audit(tool: ToolName, version: str, now: datetime) -> Fact:
        return Audit(
            tool=tool,
            version=version,
            level=level,
            passed=request.passed,
            auditor=request.auditor,
            time=now,
            report_url=request.report_url,
            summary=request.summary,
            actor=actor_of(call).recorded_name,
            request_id=request.request_id,
        )

    return audit


def verification_of(request: pb.RecordVerificationRequest, call: Call) -> Make:
    kind = VerificationKind(pb.VerificationKind.Name(request.kind).removeprefix("VERIFICATION_KIND_").lower())

    def verification(tool: ToolName, version: str, now: datetime) -> Fact:
        return Verification(
            tool=tool,
            version=version,
            kind=kind,
            passed=request.passed,
            time=now,
            evidence_url=request.evidence_url,
            summary=request.summary,
            actor=actor_of(call).recorded_name,
            request_id=request.request_id,
        )

    return verification


def score(trust_score: TrustScore, now: datetime) -> pb.TrustScore:
    computed = trust_score.score
    return pb.TrustScore(
        tool=trust_score.tool.resource,
        version=trust_score.version.head.name,
        score=computed.value,
        components=[_component(component) for component in computed.components],
        undecayed=computed.undecayed,
        decay=computed.decay,
        last_verified_time=timestamp(computed.last_verified),
        compute_time=timestamp(now),
    )


def stage(domain_stage: Stage) -> pb.ContributionStage.ValueType:
    return pb.ContributionStage.Value(f"CONTRIBUTION_STAGE_{domain_stage.name}")


def stage_of(number: pb.ContributionStage.ValueType) -> Stage | None:
    """Convert a stage; None if it is unset."""
    return Stage(pb.ContributionStage.Name(number).removeprefix("CONTRIBUTION_STAGE_").lower()) if number else None


def stage_response(stage_progress: StageProgress) -> pb.GetStageResponse:
    return pb.GetStageResponse(
        stage=stage(stage_progress.stage),
        next=stage(stage_progress.stage.next) if stage_progress.stage.next else pb.CONTRIBUTION_STAGE_UNSPECIFIED,
        gates=[pb.Gate(gate=gate.gate, met=gate.met, found=gate.evidence) for gate in stage_progress.gates],
    )


def _component(component: Component) -> pb.TrustComponent:
    return pb.TrustComponent(
        signal=pb.TrustSignal.Value(f"TRUST_SIGNAL_{component.signal.name}"),
        value=component.reading.value,
        weight=component.weight,
        contribution=component.contribution,
        facts=dict(component.reading.seen),
        missing=component.reading.missing,
    )
