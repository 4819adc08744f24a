"""Runs a tool in a new process on copies of its volumes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from libs.common.telemetry.log import Log
from services.executor.adapters.runners.worker.answer import ToolAnswer, log_failure
from services.executor.adapters.runners.workspace.workspace import Volumes, Workspace
from services.executor.domain.run import Forecast, RunRequest, RunResult
from services.executor.domain.tool import Effect, Tool

Attempt = Callable[[Workspace], Awaitable[ToolAnswer]]
"""Runs a process to its end with the workspace's volumes and returns its answer."""


async def run_one_shot(volumes: Volumes, tool: Tool, work: RunRequest, log: Log, attempt: Attempt) -> RunResult:
    """Run a process on copies of its volumes. The result's effects are still to be committed or rolled back.

    On any failure the copies are removed and the volumes stay unchanged.
    """
    workspace = await volumes.open(tool, work.tenant)
    try:
        answer = await attempt(workspace)
        report_answer(log, tool, work, answer)
        observed = await workspace.observe_effects()
        if work.preview:
            await workspace.rollback()
            return forecast_from(answer, observed)
    except BaseException:
        # Not awaited: the run may have ended because its time was over.
        workspace.start_rollback()
        raise
    if not observed:
        await workspace.rollback()
        return result_from(answer)
    return result_to_commit(answer, observed, workspace, work.invocation_id)


def report_answer(log: Log, tool: Tool, work: RunRequest, answer: ToolAnswer) -> None:
    """Raise the answer's failure, if it is one. What the tool reported before it is added to the run's notes."""
    if answer.failure is not None:
        work.notes.effects, work.notes.costs = answer.effects, answer.costs
        if answer.detail:
            log_failure(log, tool, work, answer.failure, answer.detail)
        raise answer.failure


def result_from(answer: ToolAnswer) -> RunResult:
    """Return the run result of an answer without changes of volumes."""
    return RunResult(answer.value, effects=answer.effects, costs=answer.costs, undo=answer.undo)


def result_to_commit(
    answer: ToolAnswer, observed: tuple[Effect, ...], workspace: Workspace, invocation_id: str
) -> RunResult:
    """Return the run result of an answer, with the changes of volumes to commit."""
    return RunResult(
        answer.value,
        effects=(*observed, *answer.effects),
        costs=answer.costs,
        undo=answer.undo,
        commit=partial(workspace.commit, invocation_id),
        committed=workspace.committed,
        rollback=workspace.rollback,
        forget=partial(workspace.forget, invocation_id),
        journal_volume=workspace.journal_volume,
    )


def forecast_from(answer: ToolAnswer, observed: tuple[Effect, ...] = ()) -> RunResult:
    """Return the result of a preview: the observed effects and the further ones that the tool declares."""
    seen = {(effect.resource, effect.operation) for effect in observed}
    declared = tuple(effect for effect in answer.effects if (effect.resource, effect.operation) not in seen)
    forecast = Forecast((*observed, *declared), answer.expects, answer.impact, answer.value)
    return RunResult(answer.value, costs=answer.costs, forecast=forecast)
