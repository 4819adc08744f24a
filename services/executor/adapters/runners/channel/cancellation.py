"""Stops a run whose job is canceled: first it is asked to stop, then it is terminated, then it is killed.

A call without a job is killed when its task is canceled; nothing of this applies to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from libs.common.errors import MeshError, Reason
from services.executor.adapters.runners.worker.answer import ToolAnswer
from services.executor.domain import errors
from services.executor.domain.run_channel import RunChannel
from services.executor.domain.tool import Tool

# These say more about the run than that it was canceled.
_KEPT = frozenset({Reason.NETWORK_POLICY_VIOLATION, Reason.PARTIAL_FAILURE})


class Stop(StrEnum):
    """How a canceled run ended."""

    COOPERATIVE = "cooperative"
    """The tool stopped by itself."""
    TERMINATED = "terminated"
    """It ended after SIGTERM."""
    KILLED = "killed"
    NOT_SUPPORTED = "not_supported"
    """The tool does not support cancellation, so it was not asked: it was terminated, and killed if it went on."""


@dataclass(frozen=True, slots=True)
class CancelGrace:
    """How long each step of a cancellation takes effect before the next."""

    stop_seconds: float = 5.0
    """From the request to the termination."""
    terminate_seconds: float = 2.0
    """From the termination to the kill."""


@dataclass(frozen=True, slots=True)
class StopSteps:
    """How one process is stopped."""

    request: Callable[[str], None]
    """Asks it to stop, with the reason. Never waits: the process may read nothing."""
    terminate: Callable[[], Awaitable[None]]
    kill: Callable[[], Awaitable[object]]


async def run_cancelable(
    run: Coroutine[Any, Any, ToolAnswer], channel: RunChannel | None, tool: Tool, steps: StopSteps, grace: CancelGrace
) -> ToolAnswer:
    """Return the answer of a run. Raises INVOCATION_CANCELED if it is canceled and does not end with a result."""
    if channel is None:
        return await run
    task = asyncio.create_task(run, name="tool-run")
    try:
        ends: set[asyncio.Future[Any]] = {task, channel.canceled}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        stop = None if task.done() else await _stop(task, channel.canceled.result(), tool, steps, grace)
        try:
            answer = await task
        except MeshError as error:
            if stop is None or error.reason in _KEPT:
                raise
            raise errors.canceled(stop) from None
        if answer.failure is None or answer.failure.reason in _KEPT or not channel.canceled.done():
            return answer
        # What the tool reported before it stopped is kept.
        return replace(answer, failure=errors.canceled(stop or Stop.COOPERATIVE), ends_worker=True)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


async def _stop(task: asyncio.Task[ToolAnswer], reason: str, tool: Tool, steps: StopSteps, grace: CancelGrace) -> Stop:
    """Stop a run, and return how it ended."""
    if tool.cancellation_supported:
        steps.request(reason)
        if await _ends(task, grace.stop_seconds):
            return Stop.COOPERATIVE
    await steps.terminate()
    if await _ends(task, grace.terminate_seconds):
        return Stop.TERMINATED if tool.cancellation_supported else Stop.NOT_SUPPORTED
    await steps.kill()
    await asyncio.wait({task})
    return Stop.KILLED if tool.cancellation_supported else Stop.NOT_SUPPORTED


async def _ends(task: asyncio.Task[ToolAnswer], seconds: float) -> bool:
    done, _ = await asyncio.wait({task}, timeout=seconds)
    return bool(done)
