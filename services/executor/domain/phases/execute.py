"""Running a tool: counted where it is limited, in its place beside others, under one limit of time."""

from __future__ import annotations

import asyncio

from libs.common.runtime.clock import Clock
from services.executor.domain import errors
from services.executor.domain.deadlines import limit_for
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Ran, Work
from services.executor.domain.ports import Claims, Runner
from services.executor.domain.scheduling.budget import Accounts
from services.executor.domain.states import State
from services.executor.domain.tool import Tool


class Execution:
    """Gives a call its place and its time, and takes both back when it ends, however it ends."""

    def __init__(self, runner: Runner, claims: Claims, accounts: Accounts, clock: Clock) -> None:
        self._runner, self._claims, self._accounts, self._clock = runner, claims, accounts, clock

    async def run(self, invocation: Invocation, tool: Tool) -> Ran:
        """Return what the tool brought back. Raises TOOL_TIMEOUT, DEADLINE_EXCEEDED or TOKEN_EXPIRED when its time was over."""
        limit = limit_for(tool, invocation.request, invocation.deadline, self._clock)
        if invocation.decision is not None and invocation.decision.limits:
            limit = await self._accounts.reserve(invocation, invocation.decision, limit)
        if invocation.claim is not None and not self._claims.sure(invocation.claim):
            # This process was silent for so long that somebody else may run the call by now.
            raise errors.claim_lost()
        invocation.enter(State.RUNNING)
        invocation.attempts = 1
        invocation.ran_from = self._clock.monotonic()
        work = _work(invocation, limit.seconds)
        try:
            if self._runner.at_once(tool):
                return await self._runner.run(tool, work)
            async with asyncio.timeout(limit.seconds):
                return await self._runner.run(tool, work)
        except TimeoutError:
            raise limit.exceeded() from None
        finally:
            self._accounts.settle(invocation)

    async def spare(self, invocation: Invocation) -> None:
        """Return once a call is counted that an earlier result answers, so that nothing runs: whoever asks often is limited all the same."""
        if invocation.decision is not None and invocation.decision.limits:
            await self._accounts.count(invocation, invocation.decision)


def _work(invocation: Invocation, seconds: float) -> Work:
    request, caller = invocation.request, invocation.request.caller
    return Work(
        invocation.invocation_id,
        invocation.arguments if invocation.call_input is None else invocation.call_input,
        seconds,
        tenant=caller.tenant,
        subject=caller.subject,
        idempotency_key=request.idempotency_key,
        preview=invocation.preview,
    )
