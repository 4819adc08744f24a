"""Limits a wait before the run (for a claim, a cached result or a slot) to the remaining time of the call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from libs.common.runtime.clock import Clock
from services.executor.domain import errors
from services.executor.domain.invocation import Invocation

_FOREVER = float("inf")


@asynccontextmanager
async def limit_wait(invocation: Invocation, clock: Clock) -> AsyncIterator[None]:
    """Limit the block to the caller's deadline and the lifetime of its token.

    Raises DEADLINE_EXCEEDED or TOKEN_EXPIRED when that time is over, also before the block begins.
    """
    left = invocation.deadline.run_until - clock.monotonic()
    authority = invocation.request.caller.authority_ends - clock.now().timestamp()
    seconds, exceeded = (left, errors.deadline_exceeded) if left <= authority else (authority, errors.authority_ended)
    if seconds <= 0:
        raise exceeded()
    try:
        async with asyncio.timeout(None if seconds == _FOREVER else seconds):
            yield
    except TimeoutError:
        raise exceeded() from None
