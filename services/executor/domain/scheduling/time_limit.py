"""Waiting before a run: for a key, for somebody else's run, for a turn. However long that could take, it ends with the time of the call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from libs.common.runtime.clock import Clock
from services.executor.domain import errors
from services.executor.domain.deadlines import Limit
from services.executor.domain.invocation import Invocation

_FOREVER = float("inf")


@asynccontextmanager
async def in_time(invocation: Invocation, clock: Clock) -> AsyncIterator[None]:
    """Bound what is waited for in the block by what the caller has left and how long its authority lasts. Raises DEADLINE_EXCEEDED or
    TOKEN_EXPIRED when that is over, also before anything is waited for."""
    limit = _patience(invocation, clock)
    if limit.seconds <= 0:
        raise limit.exceeded()
    try:
        async with asyncio.timeout(None if limit.seconds == _FOREVER else limit.seconds):
            yield
    except TimeoutError:
        raise limit.exceeded() from None


def _patience(invocation: Invocation, clock: Clock) -> Limit:
    left = invocation.deadline.run_until - clock.monotonic()
    authority = invocation.request.caller.authority_ends - clock.now().timestamp()
    return Limit(left, errors.deadline_exceeded) if left <= authority else Limit(authority, errors.authority_ended)
