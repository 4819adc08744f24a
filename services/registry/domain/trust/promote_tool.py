"""GetStage, PromoteTool and DemoteTool: one stage at a time, and only through every gate."""

from __future__ import annotations

from dataclasses import dataclass

from libs.common.errors import MeshError, Reason
from libs.common.tool_names import ToolName
from services.registry.domain.model import LifecycleState, Registrar
from services.registry.domain.trust.compute_score import Scales, Weighed
from services.registry.domain.trust.stages import Gate, Stage, StageChange, gates_of, unmet

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
class Progress:
    """Where a tool stands, and every gate of what comes next."""

    stage: Stage
    gates: tuple[Gate, ...]


async def get_stage(reference: str, *, scales: Scales) -> Progress:
    """Return the stage and the gates of the next one."""
    weighed = await scales.weigh(ToolName.parse(reference))
    stage = await scales.book.stage(weighed.tool)
    return Progress(stage, _gates(stage.next, weighed) if stage.next else ())


async def promote_tool(reference: str, believed: Stage | None, by: Registrar, reason: str, *, scales: Scales) -> Stage:
    """Move the tool to the next stage. `believed` is where it is thought to be; None means wherever it is."""
    weighed = await scales.weigh(ToolName.parse(reference))
    stage = await scales.book.stage(weighed.tool)
    if believed not in (None, stage):
        raise stage_changed(stage)
    if stage.next is None:
        raise no_further_stage()
    gates = _gates(stage.next, weighed)
    if await scales.book.revoked(weighed.tool):
        gates = (*gates, Gate("not_revoked", False, "the tool is revoked"))
    if not all(gate.met for gate in gates):
        raise unmet(stage.next, gates)
    return await _move(weighed.tool, stage, stage.next, by, reason, scales)


async def demote_tool(reference: str, to: Stage, by: Registrar, reason: str, *, scales: Scales) -> Stage:
    """Move the tool back. To where it already is changes nothing."""
    tool = (await scales.weigh(ToolName.parse(reference))).tool
    stage = await scales.book.stage(tool)
    if stage is to:
        return stage
    if not to.is_before(stage):
        raise stage_not_earlier(stage)
    return await _move(tool, stage, to, by, reason, scales)


async def _move(tool: ToolName, before: Stage, after: Stage, by: Registrar, reason: str, scales: Scales) -> Stage:
    change = StageChange(tool, before, after, by.recorded, reason, scales.clock.now())
    if not await scales.book.move_stage(change):
        raise stage_changed(await scales.book.stage(tool))
    return after


def _gates(stage: Stage, weighed: Weighed) -> tuple[Gate, ...]:
    offered = weighed.version.head.standing.state in _MAY_BE_OFFERED
    return gates_of(stage, weighed.facts if offered else None)
