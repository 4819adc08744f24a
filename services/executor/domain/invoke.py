"""One call, from asking to answer: request, validate, authorize, execute, verify, return.

Read it top to bottom. Nothing runs before its decision is durable, and nothing is answered before its outcome is. A decision
must be in the log; the outcome of what then ran may also wait for the log where it cannot be lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

from libs.common.errors import MeshError
from libs.common.ids import new_id
from libs.common.json.jsonio import dump, parse
from services.executor.domain import errors
from services.executor.domain.audit_records import outcome_record
from services.executor.domain.idempotency.unknown_outcome import Doubted, Overtaken, Uncertain, overtaken
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Claim, Ran, Request, Result, Settled, Source
from services.executor.domain.phases.pipeline import Parts
from services.executor.domain.results.cache import Flight, Kept, key_for
from services.executor.domain.results.check import Answer
from services.executor.domain.results.replay import replay
from services.executor.domain.results.size_limits import few_changes, few_effects, few_places, few_texts
from services.executor.domain.scheduling.time_limit import in_time
from services.executor.domain.states import State
from services.executor.domain.tool import Tool


class Invoke:
    """Runs calls. Every one leaves its evidence: refusals, failures, timeouts and cancellations too."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._clock = parts, parts.clock
        self._uncertain = Uncertain(parts.tools, self, parts.claims, parts.clock)
        self._opening, self._keys, self._closing = parts.opening, parts.keys, parts.closing
        self._turns, self._execution, self._verify = parts.turns, parts.execution, parts.verification

    def __call__(self, request: Request) -> Coroutine[Any, Any, Result]:
        """Return the result of the call, or raise MeshError with the invocation's id."""
        parts = self._parts
        return parts.serving(Invocation(request, parts.clock, parts.spans.begin()), self._phases)

    def stop(self, request: Request, error: MeshError) -> bool:
        """End the call of this very request if it is under way: on record, and answered with the error. Say whether it was; one that is
        just ending keeps its own ending."""
        return self._parts.serving.stop(request, error)

    async def never_began(self, request: Request, error: MeshError) -> MeshError:
        """Put on record that a call was not begun, and why. Return what its caller gets."""
        return await self._parts.serving.never_began(Invocation(request, self._clock, None), error)

    async def given_up(self, request: Request) -> None:
        """Put on record that a call was not begun because its caller left, or its time was over, before its turn came."""
        await self._parts.serving.given_up(Invocation(request, self._clock, None))

    async def _phases(self, invocation: Invocation) -> Result:
        begin = invocation.phases.begin

        begin("request")
        self._opening.request(invocation)

        begin("validate")
        tool = self._opening.validate(invocation)

        begin("authorize")
        await self._opening.authorize(invocation, tool)

        begin("execute")
        await self._opening.record_decision(invocation)
        if invocation.request.idempotency_key:
            settled = await self._keys.claim(invocation, tool, partial(self._resolve, invocation, tool))
            if settled is not None:
                return await self._replay(invocation, tool, settled)
        # Verified where it runs: a call keeps its place until its effects are real.
        answer = await (self._remembered if tool.cache_seconds else self._fresh)(invocation, tool)

        begin("return")
        await self._conclude(invocation, tool, answer)
        invocation.phases.end()
        if invocation.left:
            # It left while its effects became real. They are on record and under its key as what they are: now it may go.
            raise asyncio.CancelledError
        return self._result(invocation, tool, answer)

    async def _resolve(self, invocation: Invocation, tool: Tool, claim: Claim, doubted: Doubted) -> Settled | None:
        """Find out, by the tool's rule, what became of an earlier call with the key whose owner fell silent."""
        return await self._uncertain.resolve(
            invocation, tool, claim, doubted, partial(self._verify.answer, invocation, tool)
        )

    # Execute and verify: in its place beside others, and only what keeps the tool's word.

    async def _fresh(self, invocation: Invocation, tool: Tool, flight: Flight | None = None) -> Answer:
        if self._turns.free(tool):
            return await self._run(invocation, tool, flight)
        async with self._turns.turn(invocation, tool):
            await self._opening.still_usable(invocation, tool)
            return await self._run(invocation, tool, flight)

    async def _run(self, invocation: Invocation, tool: Tool, flight: Flight | None) -> Answer:
        ran = await self._execution.run(invocation, tool)
        answer = await self._verified(invocation, tool, ran)
        if flight is not None:
            # As the tool returned it: what binds a call is its own decision's business.
            flight.keep(dump(ran.value), self._clock.now(), tool.cache_seconds)
        return answer

    async def _verified(self, invocation: Invocation, tool: Tool, ran: Ran) -> Answer:
        invocation.phases.begin("verify")
        return await self._verify(invocation, tool, ran)

    async def _remembered(self, invocation: Invocation, tool: Tool) -> Answer:
        """Use an earlier result of the same call again, or run for everybody who would get the same."""
        key = key_for(tool, invocation.request.caller, invocation.asked.digest if invocation.asked else "")
        if key is None:
            return await self._fresh(invocation, tool)
        async with in_time(invocation, self._clock):
            found = await self._parts.cache.enter(key)
        if isinstance(found, Kept):
            await self._execution.spare(invocation)
            invocation.retrieved = found.created
            return await self._verified(invocation, tool, Ran(parse(found.content)))
        try:
            return await self._fresh(invocation, tool, found)
        finally:
            found.end()

    # Return: the outcome is durable, then the caller hears of it.

    async def _conclude(self, invocation: Invocation, tool: Tool, answer: Answer) -> None:
        invocation.enter(State.SUCCEEDED)
        invocation.result_id, invocation.closed = new_id(), True
        record = outcome_record(invocation, result=answer.shown)
        invocation.evidence.append(f"records/{record.record_id}")
        try:
            if invocation.claim is None:
                await self._closing.conclude(record, until=invocation.deadline.answer_by)
            else:
                outcome = Settled(invocation.invocation_id, self._result(invocation, tool, answer))
                kept = self._closing.keep_and_conclude(invocation, invocation.claim, outcome, record)
                await self._closing.to_the_end(kept)
        except Overtaken:
            # On record as what it was; but what the key answers is somebody else's by now.
            raise overtaken(tool, invocation.invocation_id) from None
        except MeshError as error:
            raise errors.result_withheld() from error

    async def _replay(self, invocation: Invocation, tool: Tool, settled: Settled) -> Result:
        """Answer with what the first call with the key ended in, on record like any other answer."""
        invocation.replayed = True
        first = settled.outcome
        if isinstance(first, MeshError):
            first.metadata.setdefault("first_invocation", settled.invocation_id)
            raise first
        invocation.phases.begin("return")
        scanner = self._opening.scanner(invocation)
        first, shown = await replay(first, invocation, tool, scanner, self._parts.storing)
        invocation.enter(State.SUCCEEDED)
        invocation.closed = True
        record = outcome_record(invocation, result=shown)
        invocation.evidence.append(f"records/{record.record_id}")
        await self._closing.append(record, until=invocation.deadline.answer_by)
        invocation.phases.end()
        evidence = (*first.evidence, *invocation.evidence)
        trace_id = invocation.request.trace_id
        return replace(first, source=Source.REPLAY, replayed=True, evidence=evidence, trace_id=trace_id)

    def _result(self, invocation: Invocation, tool: Tool, answer: Answer) -> Result:
        return Result(
            result_id=invocation.result_id,
            invocation_id=invocation.invocation_id,
            content=answer.content,
            tool_version=tool.name,
            tool_digest=tool.digest,
            source=Source.COMPUTED if invocation.retrieved is None else Source.CACHE,
            created=self._clock.now(),
            total=invocation.elapsed(),
            phases=tuple(invocation.phases.durations),
            attempts=invocation.attempts,
            sandbox=invocation.sandbox,
            trace_id=invocation.request.trace_id,
            changes=few_changes(invocation.changes),
            changed=few_places(invocation.changed),
            deprecation=tool.deprecation,
            evidence=tuple(invocation.evidence),
            policies=invocation.decision.policies if invocation.decision else (),
            context=few_texts(invocation.context),
            effects=few_effects(invocation.effects),
            effect_count=len(invocation.effects),
            costs=invocation.costs,
            undone_by=tool.compensation,
            undo=b"" if invocation.undo is None else dump(invocation.undo),
            stored=answer.stored,
            shown=answer.presented,
            retrieved=invocation.retrieved,
        )
