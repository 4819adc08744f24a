"""The RPCs of the trust service, in the order of the contract."""

from __future__ import annotations

from typing import Any

from toolmesh.registry.v1 import trust_service_pb2 as pb
from toolmesh.registry.v1 import trust_service_pb2_grpc as rpc

from libs.common.call_context import serving
from libs.common.telemetry.log import Log
from libs.common.tool_names import ToolName
from services.registry.convert import trust as convert
from services.registry.convert.registry import actor_of
from services.registry.domain.ports import Histories, Wakeup
from services.registry.domain.trust.compute_score import TrustScorer
from services.registry.domain.trust.promote_tool import demote_tool, get_stage, promote_tool
from services.registry.domain.trust.rate_tool import rate_tool, record_fact
from services.registry.domain.trust.revoke_tool import reinstate_tool, revoke_tool
from services.registry.domain.trust.stages import Stage


class TrustHandlers(rpc.TrustServiceServicer):
    """Serves trust. The RPC chain has already authenticated and authorized the caller."""

    def __init__(self, *, scorer: TrustScorer, histories: Histories, wakeup: Wakeup, journal: Log) -> None:
        self._scorer, self._histories, self._wakeup, self._journal = scorer, histories, wakeup, journal

    async def GetTrustScore(self, request: pb.GetTrustScoreRequest, context: Any) -> pb.GetTrustScoreResponse:
        trust_score = await self._scorer.score(ToolName.parse(request.name))
        tool = trust_score.tool
        return pb.GetTrustScoreResponse(
            score=convert.score(trust_score, self._scorer.clock.now()),
            stage=convert.stage(await self._scorer.store.stage(tool)),
            revoked=await self._scorer.store.revoked(tool),
        )

    async def RateTool(self, request: pb.RateToolRequest, context: Any) -> pb.RateToolResponse:
        rated = await rate_tool(
            request.version,
            request.stars,
            request.comment,
            actor_of(serving()),
            scorer=self._scorer,
            histories=self._histories,
        )
        return pb.RateToolResponse(average=rated.average, ratings=rated.count)

    async def RecordSecurityAudit(
        self, request: pb.RecordSecurityAuditRequest, context: Any
    ) -> pb.RecordSecurityAuditResponse:
        call = serving()
        fact = await record_fact(request.version, actor_of(call), convert.audit_of(request, call), scorer=self._scorer)
        self._journal.info("security audit recorded", version=request.version, passed=request.passed, fact=fact)
        return pb.RecordSecurityAuditResponse(fact_id=fact)

    async def RecordVerification(
        self, request: pb.RecordVerificationRequest, context: Any
    ) -> pb.RecordVerificationResponse:
        call = serving()
        fact = await record_fact(
            request.version, actor_of(call), convert.verification_of(request, call), scorer=self._scorer
        )
        self._journal.info("verification recorded", version=request.version, passed=request.passed, fact=fact)
        return pb.RecordVerificationResponse(fact_id=fact)

    async def GetStage(self, request: pb.GetStageRequest, context: Any) -> pb.GetStageResponse:
        return convert.stage_response(await get_stage(request.name, scorer=self._scorer))

    async def PromoteTool(self, request: pb.PromoteToolRequest, context: Any) -> pb.PromoteToolResponse:
        believed = convert.stage_of(request.from_stage)
        reached = await promote_tool(request.name, believed, actor_of(serving()), request.reason, scorer=self._scorer)
        return pb.PromoteToolResponse(stage=self._log_change("tool promoted", request.name, reached))

    async def DemoteTool(self, request: pb.DemoteToolRequest, context: Any) -> pb.DemoteToolResponse:
        wanted = convert.stage_of(request.to_stage) or Stage.SUBMITTED
        reached = await demote_tool(request.name, wanted, actor_of(serving()), request.reason, scorer=self._scorer)
        return pb.DemoteToolResponse(stage=self._log_change("tool demoted", request.name, reached))

    async def RevokeTool(self, request: pb.RevokeToolRequest, context: Any) -> pb.RevokeToolResponse:
        heads = await revoke_tool(
            request.name,
            convert.change_request_of(request, serving()),
            catalogue=self._scorer.catalogue,
            wakeup=self._wakeup,
            clock=self._scorer.clock,
        )
        self._journal.warning("tool revoked", tool=request.name, versions=len(heads))
        return pb.RevokeToolResponse(versions=[head.name for head in heads])

    async def ReinstateTool(self, request: pb.ReinstateToolRequest, context: Any) -> pb.ReinstateToolResponse:
        heads = await reinstate_tool(
            request.name,
            convert.change_request_of(request, serving()),
            catalogue=self._scorer.catalogue,
            wakeup=self._wakeup,
            clock=self._scorer.clock,
        )
        self._journal.warning("tool reinstated", tool=request.name, versions=len(heads))
        return pb.ReinstateToolResponse(versions=[head.name for head in heads])

    def _log_change(self, what: str, tool: str, stage: Stage) -> pb.ContributionStage.ValueType:
        self._journal.info(what, tool=tool, stage=stage.value)
        return convert.stage(stage)
