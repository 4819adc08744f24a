"""Previews a call: validated and authorized like the call, run in dry-run mode, rolled back."""

from __future__ import annotations

from services.executor.domain import errors
from services.executor.domain.audit_records import outcome_record
from services.executor.domain.deadlines import time_left
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import PreviewResult, Request
from services.executor.domain.phases.call_fingerprint import call_fingerprint
from services.executor.domain.phases.pipeline import Pipeline
from services.executor.domain.ports import PreviewTokens
from services.executor.domain.preview.forecast import RedactedForecast, needs_approval, redact_forecast
from services.executor.domain.results.effects import merge_effects
from services.executor.domain.run import Forecast, RunResult
from services.executor.domain.states import State
from services.executor.domain.tool import Tool


class PreviewInvocation:
    """Previews calls. Nothing is claimed or stored; the preview is recorded and counts against limits."""

    def __init__(self, pipeline: Pipeline, tokens: PreviewTokens) -> None:
        self._pipeline, self._ports, self._tokens = pipeline, pipeline.ports, tokens

    async def execute(self, request: Request) -> PreviewResult:
        """Return what the call would do, or raise MeshError with the preview's id."""
        invocation = Invocation(request, self._ports.clock, self._ports.spans.begin(), preview=True)
        return await self._pipeline.supervisor.run(invocation, self._run_phases)

    async def _run_phases(self, invocation: Invocation) -> PreviewResult:
        phases, begin = self._pipeline, invocation.phases.begin

        begin("request")
        phases.preflight.admit(invocation)

        begin("validate")
        tool = await phases.preflight.validate(invocation)
        if not tool.dry_run:
            raise errors.cannot_be_previewed(tool.name)

        begin("authorize")
        await phases.authorization.authorize(invocation, tool)

        begin("execute")
        await phases.authorization.record_decision(invocation)
        async with self._ports.slots.slot(invocation, tool):
            await phases.authorization.recheck_after_wait(invocation, tool)
            run = await phases.execution.run(invocation, tool)
            begin("verify")
            forecast = await self._roll_back(invocation, run)
            scanner = invocation.scanner_of(self._ports.scanners)
            redacted = await redact_forecast(invocation, tool, forecast, phases.hooks, scanner)

        begin("return")
        invocation.enter(State.SUCCEEDED)
        invocation.closed = True
        within = time_left(invocation.deadline.answer_by, self._ports.clock, phases.audit_wait)
        await self._ports.audit.conclude(outcome_record(invocation, result=redacted.payload), within=within)
        invocation.phases.end()
        return self._result(invocation, tool, redacted)

    async def _roll_back(self, invocation: Invocation, run: RunResult) -> Forecast:
        """Roll the run back, and return the tool's forecast; without one, the observed effects."""
        if run.rollback is not None:
            await self._pipeline.steps.run_shielded(run.rollback())
        forecast = run.forecast or Forecast(changes=run.effects, result=run.value)
        invocation.foreseen = merge_effects(forecast.changes)
        return forecast

    def _result(self, invocation: Invocation, tool: Tool, redacted: RedactedForecast) -> PreviewResult:
        fingerprint = call_fingerprint(invocation.request.caller, tool, invocation.arguments)
        token, expires = self._tokens.issue(fingerprint)
        return PreviewResult(
            invocation_id=invocation.invocation_id,
            tool_version=tool.name,
            forecast=redacted.forecast,
            declared=tool.effects,
            approval_required=needs_approval(invocation),
            token=token,
            expires=expires,
            trace_id=invocation.request.trace_id,
            result=redacted.result,
            left_out=redacted.left_out,
        )
