"""Retries an idempotent step after a transient failure, within a time budget."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from libs.common.errors import MeshError
from libs.common.runtime.backoff import Backoff

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


async def retry_until(step: Callable[[], Awaitable[None]], *, attempt_timeout: float, time_budget: float) -> None:
    """Repeat an idempotent step until it succeeds or `time_budget` seconds are over; both return normally.

    Raises the first failure that is not transient.
    """
    loop, backoff = asyncio.get_running_loop(), Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, jitter=0.0)
    give_up_at = loop.time() + time_budget
    while loop.time() + (pause := backoff.next_pause()) < give_up_at:
        await asyncio.sleep(pause)
        try:
            async with asyncio.timeout(attempt_timeout):
                await step()
            return
        except Exception as error:
            if not is_transient(error):
                raise


def is_transient(error: Exception) -> bool:
    """Return whether a repetition may succeed: the store timed out or answered with a retryable error."""
    return isinstance(error, TimeoutError) or (isinstance(error, MeshError) and error.row.retryable)
