"""Ends a run when its job is canceled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from services.executor.domain import errors
from services.executor.domain.run import RunRequest, RunResult


async def run_cancelable(run: Coroutine[Any, Any, RunResult], work: RunRequest) -> RunResult:
    """Return the result of a run, unless its job is canceled first. Raises INVOCATION_CANCELED then."""
    if work.channel is None:
        return await run
    task = asyncio.create_task(run, name="cancelable-run")
    try:
        ends: set[asyncio.Future[Any]] = {task, work.channel.canceled}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise errors.canceled("terminated")
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
