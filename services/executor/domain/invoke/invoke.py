"""Invokes a tool: request, validate, authorize, execute, verify, return.

Nothing runs before its decision is durable, and no result is returned before its outcome is. A decision must be in the
log; the outcome of a run may also wait in the outbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

from libs.common.errors import MeshError
from libs.common.json.jsonio import dump, parse
from services.executor.domain.idempotency.unknown_outcome import UnknownOutcomes, UnresolvedClaim
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Claim, ClaimOutcome, Request, Result
from services.executor.domain.phases.pipeline import Pipeline
from services.executor.domain.results.cache import CacheHit, FlightLease, allows_stale, cache_key_for
from services.executor.domain.results.check import VerifiedResult
from services.executor.domain.results.replay import Replay
from services.executor.domain.run import RunResult
from services.executor.domain.scheduling.time_limit import limit_wait
from services.executor.domain.tool import Tool


class Invoke:
    """Runs calls. Every call is recorded, whether it succeeds, fails, times out or is canceled."""

    def __init__(self, pipeline: Pipeline) -> None:
        ports = pipeline.ports
        self._clock, self._spans, self._slots, self._cache = ports.clock, ports.spans, ports.slots, ports.cache
        self._preflight, self._authorization, self._claims = (
            pipeline.preflight,
            pipeline.authorization,
            pipeline.claims,
        )
        self._execution, self._verifier, self._completion = (
            pipeline.execution,
            pipeline.verifier,
            pipeline.completion,
        )
        self._supervisor, self._heavy_work = pipeline.supervisor, ports.heavy_work
        self._unknown_outcomes = UnknownOutcomes(ports.tools, self.execute, ports.claims, ports.commits, ports.clock)
        self._replay = Replay(ports.audit, ports.large_results, ports.scanners, ports.clock, pipeline.audit_wait)

    def execute(self, request: Request) -> Coroutine[Any, Any, Result]:
        """Return the result of the call, or raise MeshError with the invocation's id."""
        return self.run(Invocation(request, self._clock, self._spans.begin()))

    def run(self, invocation: Invocation) -> Coroutine[Any, Any, Result]:
        """Return the result of an invocation, or raise MeshError."""
        return self._supervisor.run(invocation, self._run_phases)

    def stop(self, request: Request, error: MeshError) -> bool:
        """Cancel the call of this very request with the error. Return whether it was canceled; one that commits its
        effects is not."""
        return self._supervisor.active.cancel_request(request, error)

    async def record_not_started(self, request: Request, error: MeshError, calls: int = 1) -> MeshError:
        """Record that a call, or several like it, is not started, and why. Return the error of its caller."""
        invocation = Invocation(request, self._clock, None)
        invocation.refused_calls = calls
        return await self.record_failure(invocation, error)

    async def record_failure(self, invocation: Invocation, error: MeshError) -> MeshError:
        """Record that an invocation is not started, and why. Return the error of its caller."""
        return await self._supervisor.record_not_started(invocation, error)

    async def record_abandoned(self, request: Request) -> None:
        """Record that a call is not started because its caller left, or its time was over."""
        await self._supervisor.record_abandoned(Invocation(request, self._clock, None))

    async def _run_phases(self, invocation: Invocation) -> Result:
        begin = invocation.phases.begin

        begin("request")
        self._preflight.admit(invocation)

        begin("validate")
        tool = await self._preflight.validate(invocation)

        begin("authorize")
        await self._authorization.authorize(invocation, tool)

        begin("execute")
        await self._authorization.record_decision(invocation)
        if invocation.request.idempotency_key:
            settled = await self._claims.acquire(
                invocation,
                tool,
                partial(self._resolve, invocation, tool),
                partial(self._authorization.decide_again, invocation, tool),
            )
            if settled is not None:
                return await self._replay.replay(invocation, tool, settled)
        # Verification belongs to the run: a call keeps its slot until its effects are committed.
        # An approval is for a run, so a call with one never takes the result of another.
        if tool.cache_seconds and invocation.approval is None:
            verified = await self._run_cached(invocation, tool)
        else:
            verified = await self._run(invocation, tool)

        begin("return")
        result = await self._completion.succeed(invocation, tool, verified)
        if invocation.caller_left:
            # The caller left during the commit. The outcome is recorded and settled by now, so the cancellation goes
            # on.
            raise asyncio.CancelledError
        return result

    async def _resolve(
        self, invocation: Invocation, tool: Tool, claim: Claim, unresolved: UnresolvedClaim
    ) -> ClaimOutcome | None:
        """Find the outcome of an earlier call whose owner stopped renewing its claim, by the tool's rule."""
        verify = partial(self._verifier.verify_value, invocation, tool)
        return await self._unknown_outcomes.resolve(invocation, tool, claim, unresolved, verify)

    async def _run(self, invocation: Invocation, tool: Tool, lease: FlightLease | None = None) -> VerifiedResult:
        if self._slots.needs_no_slot(tool):
            return await self._run_and_verify(invocation, tool, lease)
        async with self._slots.slot(invocation, tool):
            await self._authorization.recheck_after_wait(invocation, tool)
            return await self._run_and_verify(invocation, tool, lease)

    async def _run_and_verify(self, invocation: Invocation, tool: Tool, lease: FlightLease | None) -> VerifiedResult:
        run = await self._execution.run(invocation, tool)
        verified = await self._verifier.verify(invocation, tool, run)
        if lease is not None:
            # Cached as the tool returned it: the obligations of each call depend on its own decision.
            share = self._heavy_work.share_of(invocation.request.caller)
            content = await share.run_unless_light(run.value, partial(dump, run.value))
            lease.keep(content, self._clock.now(), tool.cache_seconds, tool.stale_seconds)
        return verified

    async def _run_cached(self, invocation: Invocation, tool: Tool) -> VerifiedResult:
        """Use a cached result of the same call, or run once for all concurrent calls that would get the same."""
        arguments = invocation.payload.digest if invocation.payload else ""
        key = cache_key_for(tool, invocation.request.caller, arguments, invocation.sandbox)
        if key is None:
            return await self._run(invocation, tool)
        async with limit_wait(invocation, self._clock):
            cached = await self._cache.enter(key)
        if isinstance(cached, CacheHit):
            await self._execution.count_cached(invocation)
            return await self._use_cached(invocation, tool, cached)
        try:
            return await self._run(invocation, tool, cached)
        except MeshError as error:
            stale = self._cache.find_stale(key) if allows_stale(tool, error) else None
            if stale is None:
                raise
        finally:
            cached.end()
        invocation.stale = True
        return await self._use_cached(invocation, tool, stale)

    async def _use_cached(self, invocation: Invocation, tool: Tool, hit: CacheHit) -> VerifiedResult:
        invocation.retrieved = hit.created
        size, share = len(hit.content), self._heavy_work.share_of(invocation.request.caller)
        value = await share.run_if_large(size, partial(parse, hit.content, max_bytes=size))
        return await self._verifier.verify(invocation, tool, RunResult(value))
