"""What a call would do, without doing it: validated and authorized like the call, run where nothing of it stays."""

from __future__ import annotations

from services.executor.domain import errors
from services.executor.domain.audit_records import outcome_record
from services.executor.domain.call_fingerprint import facts_of
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Forecast, Foreseen, Ran, Request
from services.executor.domain.phases.pipeline import Parts
from services.executor.domain.ports import PreviewTokens
from services.executor.domain.preview.forecast import Foretold, awaits_person, foretold
from services.executor.domain.states import State
from services.executor.domain.tool import Tool


class Preview:
    """Answers what calls would do. Nothing is claimed or kept; the question and its answer are on record, and what it takes is counted."""

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
            await parts.opening.still_usable(invocation, tool)
            ran = await parts.execution.run(invocation, tool)
            begin("verify")
            forecast = await self._dropped(invocation, ran)
            told = await foretold(invocation, tool, forecast, parts.hooking, parts.opening.scanner(invocation))

        begin("return")
        invocation.enter(State.SUCCEEDED)
        invocation.closed = True
        await parts.closing.conclude(outcome_record(invocation, result=told.shown), until=invocation.deadline.answer_by)
        invocation.phases.end()
        return self._foreseen(invocation, tool, told)

    async def _dropped(self, invocation: Invocation, ran: Ran) -> Forecast:
        """Throw away what the tool changed on its way, and return what it foresaw; failing that, what was seen."""
        if ran.drop is not None:
            await self._parts.closing.to_the_end(ran.drop())
        invocation.costs = ran.costs
        return ran.forecast or Forecast(changes=ran.effects, result=ran.value)

    def _foreseen(self, invocation: Invocation, tool: Tool, told: Foretold) -> Foreseen:
        token, expires = self._tokens.issue(facts_of(invocation.request.caller, tool, invocation.arguments))
        return Foreseen(
            invocation_id=invocation.invocation_id,
            tool_version=tool.name,
            forecast=told.forecast,
            approval_required=awaits_person(invocation),
            token=token,
            expires=expires,
            trace_id=invocation.request.trace_id,
            result=told.result,
            left_out=told.left_out,
        )
