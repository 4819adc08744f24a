"""Idempotency keys: with one, only the first call runs, and everybody else hears what became of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from libs.common.json.canonical import digest
from libs.common.json.jsonio import parse_object
from libs.common.runtime.clock import Clock
from services.executor.domain.idempotency.unknown_outcome import Doubted
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Claim, Settled
from services.executor.domain.ports import Claims
from services.executor.domain.scheduling.time_limit import in_time
from services.executor.domain.tool import Tool

Resolve = Callable[[Claim, Doubted], Awaitable[Settled | None]]


class Keys:
    """Takes keys for calls."""

    def __init__(self, claims: Claims, clock: Clock) -> None:
        self._claims, self._clock = claims, clock

    async def claim(self, invocation: Invocation, tool: Tool, resolve: Resolve) -> Settled | None:
        """Take the key of the call; or return what the first call with it ended in, by the tool's rule where nobody knows. Raises
        DEADLINE_EXCEEDED or TOKEN_EXPIRED when waiting for it took all the time there was."""
        request, caller = invocation.request, invocation.request.caller
        claim = Claim(
            tenant=caller.tenant,
            tool=tool.qualified,
            subject=caller.subject,
            session=caller.session_id or caller.token_id,
            key=request.idempotency_key,
            # What the caller sent: a default that changes between versions must not turn a retry into a conflict.
            arguments_digest=digest(parse_object(request.arguments)),
            invocation_id=invocation.invocation_id,
            window=tool.window,
            repeatable=tool.repeatable,
        )
        async with in_time(invocation, self._clock):
            # Held from here on, as far as this process knows: if the answer is lost to a cancellation, it is given back.
            invocation.claim = claim
            settled = await self._claims.acquire(claim)
        if isinstance(settled, Doubted):
            settled = await resolve(claim, settled)
        if settled is not None:
            invocation.claim = None
        return settled
