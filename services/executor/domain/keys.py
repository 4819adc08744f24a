"""Idempotency keys: with one, only the first call runs, and everybody else hears what became of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from libs.common.canonical import digest
from libs.common.clock import Clock
from libs.common.jsonio import parse_object
from services.executor.domain.deadlines import limit_for
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Claim, Settled
from services.executor.domain.ports import Claims
from services.executor.domain.tool import Tool
from services.executor.domain.uncertain import Doubted

# Beyond the end of the run: how long the owner of a claim may take to say how it ended.
LEASE_MARGIN = 5.0
_LONGEST_WAIT = 86_400.0


Resolve = Callable[[Claim, Doubted], Awaitable[Settled | None]]


class Keys:
    """Takes keys for calls."""

    def __init__(self, claims: Claims, clock: Clock) -> None:
        self._claims, self._clock = claims, clock

    async def claim(self, invocation: Invocation, tool: Tool, resolve: Resolve) -> Settled | None:
        """Take the key of the call; or return what the first call with it ended in, by the tool's rule where nobody knows."""
        request, caller = invocation.request, invocation.request.caller
        limit = limit_for(tool, request, invocation.deadline, self._clock)
        claim = Claim(
            tool=tool.qualified,
            subject=caller.subject,
            session=caller.session_id or caller.token_id,
            key=request.idempotency_key,
            # What the caller sent: a default that changes between versions must not turn a retry into a conflict.
            arguments_digest=digest(parse_object(request.arguments)),
            invocation_id=invocation.invocation_id,
            lease=limit.seconds + LEASE_MARGIN,
            window=tool.window,
            repeatable=tool.repeatable,
        )
        within = min(invocation.deadline.run_until - self._clock.monotonic(), _LONGEST_WAIT)
        # Held from here on, as far as this process knows: if the answer is lost to a cancellation, it is given back.
        invocation.claim = claim
        settled = await self._claims.acquire(claim, within=within)
        if isinstance(settled, Doubted):
            settled = await resolve(claim, settled)
        if settled is not None:
            invocation.claim = None
        return settled
