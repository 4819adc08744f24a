"""Runs a tool under one time limit, and counts the run where the decision limits it."""

from __future__ import annotations

import asyncio

from libs.common.redaction.tenant_scanners import TenantScanners
from libs.common.runtime.clock import Clock
from services.executor.domain import errors
from services.executor.domain.deadlines import limit_for
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import RunRequest, RunResult
from services.executor.domain.ports import ClaimStore, Runner, ToolLogSink
from services.executor.domain.results.costs import price_of, sum_costs
from services.executor.domain.results.effects import reported_elsewhere
from services.executor.domain.scheduling.budget import BudgetReservations
from services.executor.domain.states import State
from services.executor.domain.tool import Tool
from services.executor.domain.tool_logs.tool_log import log_of


class Execution:
    """The execute phase: reserves the budget, runs the tool, settles the reservation."""

    def __init__(
        self,
        runner: Runner,
        claims: ClaimStore,
        budget: BudgetReservations,
        logs: ToolLogSink,
        scanners: TenantScanners,
        clock: Clock,
    ) -> None:
        self._runner, self._claims, self._budget, self._clock = runner, claims, budget, clock
        self._logs, self._scanners = logs, scanners

    async def run(self, invocation: Invocation, tool: Tool) -> RunResult:
        """Run the tool. Raises TOOL_TIMEOUT, DEADLINE_EXCEEDED or TOKEN_EXPIRED when its time is over."""
        request, caller = invocation.request, invocation.request.caller
        limit = limit_for(tool, request, invocation.deadline, self._clock)
        if invocation.decision is not None and invocation.decision.limits:
            limit = await self._budget.reserve(invocation, invocation.decision, limit)
        if invocation.claim is not None and not self._claims.is_held(invocation.claim):
            # This process was suspended for so long that another one may run the call by now.
            raise errors.claim_lost()
        invocation.enter(State.RUNNING)
        invocation.attempts = 1
        invocation.run_started = self._clock.monotonic()
        price = price_of(invocation)
        invocation.costs = price
        run = RunRequest(
            invocation.invocation_id,
            invocation.arguments if invocation.call_input is None else invocation.call_input,
            limit.seconds,
            tenant=caller.tenant,
            subject=caller.subject,
            idempotency_key=request.idempotency_key,
            preview=invocation.preview,
            scanner=invocation.scanner,
        )
        result: RunResult | None = None
        try:
            if self._runner.runs_inline(tool):
                result = await self._runner.run(tool, run)
            else:
                async with asyncio.timeout(limit.seconds):
                    result = await self._runner.run(tool, run)
        except BaseException as error:
            invocation.effects = reported_elsewhere(run.notes.effects)
            invocation.costs = sum_costs(price, run.notes.costs)
            if isinstance(error, TimeoutError):
                raise limit.exceeded() from None
            raise
        finally:
            if invocation.reservation is not None:
                self._budget.settle(invocation)
            if run.notes.lines:
                self._logs.put(log_of(tool, run, result, invocation.scanner_of(self._scanners)))
        if result.costs:
            invocation.costs = sum_costs(price, result.costs)
        return result

    async def count_cached(self, invocation: Invocation) -> None:
        """Count a call that a cached result answers: rate limits hold for it too."""
        if invocation.decision is not None and invocation.decision.limits:
            await self._budget.count(invocation, invocation.decision)
