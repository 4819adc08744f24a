"""GetStage, PromoteTool and DemoteTool: promotion goes one stage at a time and needs every gate."""

from __future__ import annotations

from dataclasses import dataclass

from libs.common.errors import MeshError, Reason
from libs.common.tool_names import ToolName
from services.registry.domain.model import Actor, LifecycleState
from services.registry.domain.trust.compute_score import TrustScore, TrustScorer
from services.registry.domain.trust.stages import Gate, Stage, StageChange, gates_of, gates_unmet

_MAY_BE_OFFERED = frozenset(
    {LifecycleState.AVAILABLE, LifecycleState.DEFERRED, LifecycleState.REQUIRES_SETUP, LifecycleState.DEPRECATED}
)


def stage_changed(stage: Stage) -> MeshError:
    return MeshError(Reason.ETAG_MISMATCH, metadata={"stage": stage.value})


def no_further_stage() -> MeshError:
    return MeshError(Reason.FAILED_PRECONDITION, message="the tool is at the last stage")


def stage_not_earlier(stage: Stage) -> MeshError:
    return MeshError(
        Reason.FAILED_PRECONDITION, message="a tool is demoted to an earlier stage", metadata={"stage": stage.value}
    )


@dataclass(frozen=True, slots=True)
class StageProgress:
    """The stage of a tool and the gates of the next stage."""

    stage: Stage
    gates: tuple[Gate, ...]


async def get_stage(reference: str, *, scorer: TrustScorer) -> StageProgress:
    """Return the stage and the gates of the next one."""
    trust_score = await scorer.score(ToolName.parse(reference))
    stage = await scorer.store.stage(trust_score.tool)
    return StageProgress(stage, _gates(stage.next, trust_score) if stage.next else ())


async def promote_tool(reference: str, believed: Stage | None, by: Actor, reason: str, *, scorer: TrustScorer) -> Stage:
    """Promote the tool to the next stage. `believed` is the expected current stage; None accepts any."""
    trust_score = await scorer.score(ToolName.parse(reference))
    stage = await scorer.store.stage(trust_score.tool)
    if believed not in (None, stage):
        raise stage_changed(stage)
    if stage.next is None:
        raise no_further_stage()
    gates = _gates(stage.next, trust_score)
    if await scorer.store.revoked(trust_score.tool):
        gates = (*gates, Gate("not_revoked", False, "the tool is revoked"))
    if not all(gate.met for gate in gates):
        raise gates_unmet(stage.next, gates)
    return await _move(trust_score.tool, stage, stage.next, by, reason, scorer)


async def demote_tool(reference: str, to: Stage, by: Actor, reason: str, *, scorer: TrustScorer) -> Stage:
    """Demote the tool. Demotion to the current stage changes nothing."""
    tool = (await scorer.score(ToolName.parse(reference))).tool
    stage = await scorer.store.stage(tool)
    if stage is to:
        return stage
    if not to.is_before(stage):
        raise stage_not_earlier(stage)
    return await _move(tool, stage, to, by, reason, scorer)


async def _move(tool: ToolName, before: Stage, after: Stage, by: Actor, reason: str, scorer: TrustScorer) -> Stage:
    change = StageChange(tool, before, after, by.recorded_name, reason, scorer.clock.now())
    if not await scorer.store.move_stage(change):
        raise stage_changed(await scorer.store.stage(tool))
    return after


def _gates(stage: Stage, trust_score: TrustScore) -> tuple[Gate, ...]:
    offered = trust_score.version.head.standing.state in _MAY_BE_OFFERED
    return gates_of(stage, trust_score.facts if offered else None)
