"""Runs a tool: waits for its sandbox, then limits the run, and counts it where the decision limits it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from libs.common.errors import MeshError, Reason
from libs.common.redaction.tenant_scanners import TenantScanners
from libs.common.runtime.clock import Clock
from services.executor.domain import run_errors
from services.executor.domain.approvals.gate import ApprovalGate
from services.executor.domain.deadlines import Limit, limit_for, outer_limit, start_limit_for
from services.executor.domain.idempotency import errors as key_errors
from services.executor.domain.invocation import Invocation
from services.executor.domain.ports import ClaimStore, Runner, ToolLogSink
from services.executor.domain.results.costs import price_of, sum_costs
from services.executor.domain.results.effects import reported_elsewhere
from services.executor.domain.run import RunRequest, RunResult
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
        gate: ApprovalGate,
        *,
        start_seconds: float,
    ) -> None:
        self._gate = gate
        self._runner, self._claims, self._budget, self._clock = runner, claims, budget, clock
        self._logs, self._scanners, self._start_seconds = logs, scanners, start_seconds

    async def run(self, invocation: Invocation, tool: Tool) -> RunResult:
        """Run the tool. Raises SANDBOX_NOT_READY when its sandbox does not start in time.

        Raises TOOL_TIMEOUT, DEADLINE_EXCEEDED or TOKEN_EXPIRED when the time of the run is over.
        """
        request, caller = invocation.request, invocation.request.caller
        limit = limit_for(tool, request, invocation.deadline, self._clock)
        if invocation.decision is not None and invocation.decision.limits:
            limit = await self._budget.reserve(invocation, invocation.decision, limit, start=self._start_seconds)
        if invocation.before_run is not None:
            await invocation.before_run()
        # Last, so that nothing but the start of the sandbox comes between the use of an approval and the run.
        await self._gate.redeem(invocation, tool)
        timer = RunTimer(invocation, tool, limit, self._claims, self._clock)
        invocation.pause_timer = timer.pause
        run = RunRequest(
            invocation.run_id,
            invocation.arguments if invocation.call_input is None else invocation.call_input,
            limit.seconds,
            tenant=caller.tenant,
            subject=caller.subject,
            idempotency_key=request.effect_key or request.idempotency_key,
            preview=invocation.preview,
            scanner=invocation.scanner,
            channel=invocation.channel,
            caller_capabilities=request.caller_capabilities,
            code=invocation.code,
            on_launch=timer.launch,
            on_begin=timer.begin,
        )
        result: RunResult | None = None
        try:
            if self._runner.runs_inline(tool):
                result = await self._runner.run(tool, run)
            else:
                result = await self._run_timed(tool, run, timer)
        except BaseException:
            invocation.effects = reported_elsewhere(run.notes.effects)
            if invocation.attempts:
                invocation.costs = sum_costs(price_of(invocation), run.notes.costs)
            raise
        finally:
            if invocation.reservation is not None:
                self._budget.settle(invocation)
            if run.notes.lines:
                self._logs.put(log_of(tool, run, result, invocation.scanner_of(self._scanners)))
        invocation.costs = sum_costs(price_of(invocation), result.costs)
        return result

    async def count_cached(self, invocation: Invocation) -> None:
        """Count a call that a cached result answers: rate limits hold for it too."""
        if invocation.decision is not None and invocation.decision.limits:
            await self._budget.count(invocation, invocation.decision)

    async def _run_timed(self, tool: Tool, run: RunRequest, timer: RunTimer) -> RunResult:
        try:
            async with asyncio.timeout(timer.start(self._start_seconds)) as timer.timeout:
                return await self._runner.run(tool, run)
        except TimeoutError:
            raise timer.exceeded() from None


class RunTimer:
    """Limits the start of a sandbox and then the run, each by its own limit."""

    __slots__ = ("_began", "_claims", "_clock", "_invocation", "_limit", "_run_limit", "_tool", "timeout")

    def __init__(self, invocation: Invocation, tool: Tool, limit: Limit, claims: ClaimStore, clock: Clock) -> None:
        self._invocation, self._tool, self._claims, self._clock = invocation, tool, claims, clock
        self._limit = self._run_limit = limit
        self._began = clock.monotonic()
        self.timeout: asyncio.Timeout | None = None
        """The timeout around the runner; None for one that never blocks."""

    def start(self, longest: float) -> float:
        """Return the seconds that the sandbox has to start."""
        invocation, self._began = self._invocation, self._clock.monotonic()
        self._limit = start_limit_for(invocation.request, invocation.deadline, self._clock, longest)
        return self._limit.seconds

    def launch(self) -> None:
        """Note that the tool's code may run from now on. Raises SERVICE_UNAVAILABLE if the claim may be lost."""
        invocation = self._invocation
        if invocation.attempts:
            return
        if invocation.claim is not None and not self._claims.is_held(invocation.claim):
            # This process was suspended for so long that another one may run the call by now.
            raise key_errors.claim_lost()
        invocation.enter(State.RUNNING)
        invocation.attempts = 1

    def begin(self) -> float:
        """Replace the limit of the start by that of the run, and return it in seconds. Raises when no time is left."""
        invocation = self._invocation
        limit = limit_for(self._tool, invocation.request, invocation.deadline, self._clock)
        self.launch()
        self._limit = limit if limit.seconds < self._run_limit.seconds else self._run_limit
        invocation.run_started = self._clock.monotonic()
        if self.timeout is not None:
            invocation.start_wait = invocation.run_started - self._began
            self.timeout.reschedule(asyncio.get_running_loop().time() + self._limit.seconds)
        return self._limit.seconds

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Stop the tool's own time. The caller's deadline and the lifetime of its token hold meanwhile."""
        if self.timeout is None or (until := self.timeout.when()) is None:
            yield
            return
        invocation, loop = self._invocation, asyncio.get_running_loop()
        left, own_limit = max(until - loop.time(), 0.0), self._limit
        self._limit = outer_limit(invocation.request, invocation.deadline, self._clock)
        self.timeout.reschedule(loop.time() + self._limit.seconds)
        try:
            yield
        finally:
            if not self.timeout.expired():
                outer = outer_limit(invocation.request, invocation.deadline, self._clock)
                self._limit = own_limit if left <= outer.seconds else outer
                self.timeout.reschedule(loop.time() + min(left, outer.seconds))

    def exceeded(self) -> MeshError:
        """Return the error of the limit that holds at present."""
        error = self._limit.exceeded()
        if error.reason is Reason.SANDBOX_NOT_READY and self._invocation.attempts:
            return run_errors.start_unconfirmed()
        return error
