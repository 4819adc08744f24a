"""What a call would do, without doing it: validated and authorized like the call, run where nothing of it stays."""

from __future__ import annotations

from services.executor.domain import errors
from services.executor.domain.evidence import outcome_record
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Forecast, Foreseen, Ran, Request, Verdict
from services.executor.domain.parts import Parts
from services.executor.domain.ports import PreviewTokens
from services.executor.domain.previewing import facts_of
from services.executor.domain.states import State
from services.executor.domain.tool import Tool


class Preview:
    """Answers what calls would do. Nothing is claimed, kept or counted; the question and its answer are on record."""

    def __init__(self, parts: Parts, tokens: PreviewTokens) -> None:
        self._parts, self._tokens = parts, tokens

    async def __call__(self, request: Request) -> Foreseen:
        """Return what the call would do, or raise MeshError with the preview's id."""
        parts = self._parts
        invocation = Invocation(request, parts.clock, parts.spans.begin(), preview=True)
        return await parts.serving(invocation, self._phases)

    async def _phases(self, invocation: Invocation) -> Foreseen:
        parts, begin = self._parts, invocation.phases.begin

        begin("request")
        parts.opening.request(invocation)

        begin("validate")
        tool = parts.opening.validate(invocation)
        if not tool.dry_run:
            raise errors.cannot_be_previewed(tool.name)

        begin("authorize")
        await parts.opening.authorize(invocation, tool)

        begin("execute")
        await parts.opening.record_decision(invocation)
        async with parts.turns.turn(invocation, tool):
            ran = await parts.execution.run(invocation, tool)
            begin("verify")
            forecast = await self._dropped(invocation, ran)

        begin("return")
        invocation.enter(State.SUCCEEDED)
        invocation.closed = True
        await parts.closing.conclude(outcome_record(invocation), until=invocation.deadline.answer_by)
        invocation.phases.end()
        return self._foreseen(invocation, tool, forecast)

    async def _dropped(self, invocation: Invocation, ran: Ran) -> Forecast:
        """Throw away what the tool changed on its way, and return what it foresaw; failing that, what was seen."""
        if ran.drop is not None:
            await self._parts.closing.to_the_end(ran.drop())
        invocation.costs = ran.costs
        return ran.forecast or Forecast(changes=ran.effects, result=ran.value)

    def _foreseen(self, invocation: Invocation, tool: Tool, forecast: Forecast) -> Foreseen:
        token, expires = self._tokens.issue(facts_of(invocation.request.caller, tool, invocation.arguments))
        decision = invocation.decision
        return Foreseen(
            invocation_id=invocation.invocation_id,
            tool_version=tool.name,
            forecast=forecast,
            approval_required=decision is not None and decision.verdict is Verdict.NEEDS_APPROVAL,
            token=token,
            expires=expires,
            trace_id=invocation.request.trace_id,
        )
