"""A run in a process of its own, with the volumes that its tool sees."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from libs.common.telemetry.log import Log
from services.executor.adapters.runners.outcomes import tell
from services.executor.adapters.runners.worker.answer import Answer
from services.executor.adapters.runners.workspace.workspace import Volumes, Workspace
from services.executor.domain.model import Forecast, RunRequest, RunResult
from services.executor.domain.tool import Effect, Tool

Attempt = Callable[[Workspace], Awaitable[Answer]]
"""Runs a process to its end, with what the workspace shows it, and returns what it said."""


async def run_cold(volumes: Volumes, tool: Tool, work: RunRequest, log: Log, attempt: Attempt) -> RunResult:
    """Run a process on copies of its volumes and return what it brought back, its effects still to be kept or dropped. Whatever
    goes wrong, nothing of it is real."""
    workspace = await volumes.open(tool)
    try:
        answer = await attempt(workspace)
        said(log, tool, work, answer)
        observed = await workspace.effects()
        if work.preview:
            await workspace.drop()
            return forecast_of(answer, observed)
    except BaseException:
        # Nobody waits for this: time may be what ended the run.
        workspace.forget()
        raise
    if not observed:
        await workspace.drop()
        return ran_of(answer)
    return ran_of(answer, observed, workspace)


def said(log: Log, tool: Tool, work: RunRequest, answer: Answer) -> None:
    """Log what a tool had to say to whoever runs the mesh. Raises its failure, if it is one."""
    if answer.lines:
        # A warning, because those are written without what is sensitive, and nobody knows what a tool writes.
        log.warning("tool log", tool=tool.name, invocation=work.invocation_id, lines=list(answer.lines))
    if answer.failure is not None:
        if answer.detail:
            tell(log, tool, work, answer.failure, answer.detail)
        raise answer.failure


def ran_of(answer: Answer, observed: tuple[Effect, ...] = (), workspace: Workspace | None = None) -> RunResult:
    """Return what a run brought back."""
    return RunResult(
        answer.value,
        effects=(*observed, *answer.effects),
        costs=answer.costs,
        undo=answer.undo,
        commit=None if workspace is None else workspace.keep,
        rollback=None if workspace is None else workspace.drop,
    )


def forecast_of(answer: Answer, observed: tuple[Effect, ...] = ()) -> RunResult:
    """Return what a preview found out: what was seen to happen, and what else the tool says would."""
    seen = {(effect.resource, effect.operation) for effect in observed}
    further = tuple(each for each in answer.effects if (each.resource, each.operation) not in seen)
    forecast = Forecast((*observed, *further), answer.expects, answer.impact, answer.value)
    return RunResult(answer.value, costs=answer.costs, forecast=forecast)
