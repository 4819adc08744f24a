"""Redacts the forecast of a preview to what the caller may see of the call itself."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from libs.common.redaction.scanner import Scanner
from services.executor.domain.hooks.invocation_hooks import InvocationHooks
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Obligation, PayloadDigest, Verdict
from services.executor.domain.results.check import check_result
from services.executor.domain.results.obligations import REDACT_PII, affect_results, apply_obligations
from services.executor.domain.results.repeated_values import hide_in_forecast
from services.executor.domain.run import Forecast
from services.executor.domain.tool import Tool


class RedactedForecast(NamedTuple):
    """The forecast without its result, and the result as far as the caller may see it."""

    forecast: Forecast
    result: bytes = b""
    left_out: str = ""
    payload: PayloadDigest | None = None
    """The result as the record shows it, where there is one."""


async def redact_forecast(
    invocation: Invocation, tool: Tool, forecast: Forecast, hooks: InvocationHooks, scanner: Scanner
) -> RedactedForecast:
    """Apply the checks of a real call to a forecast. Raises RESULT_INVALID, SANITIZATION_FAILED or HOOK_BLOCKED."""
    texts = _redact_texts(invocation, replace(forecast, result=None), scanner)
    if forecast.result is None:
        return RedactedForecast(texts)
    if needs_approval(invocation):
        # The preview shows an approver what the call would change. Only the approval releases the result.
        return RedactedForecast(texts, left_out="needs_approval")
    checked = check_result(invocation, tool, forecast.result, scanner)
    if checked.large:
        return RedactedForecast(texts, left_out="too_large")
    if hooks.active:
        await hooks.after(invocation, tool, checked.value)
    return RedactedForecast(texts, checked.content, payload=checked.payload)


def needs_approval(invocation: Invocation) -> bool:
    """Return whether the call would need approval."""
    return invocation.decision is not None and invocation.decision.verdict is Verdict.NEEDS_APPROVAL


def _redact_texts(invocation: Invocation, forecast: Forecast, scanner: Scanner) -> Forecast:
    """Redact the tool's own texts where the result is restricted: a tool may repeat there what it read."""
    if scanner.known is not None:
        impact, preconditions = hide_in_forecast(forecast, scanner.known)
        forecast = replace(forecast, impact=impact, preconditions=preconditions)
    decision = invocation.decision
    if decision is None or not (needs_approval(invocation) or affect_results(decision.obligations)):
        return forecast
    texts = [forecast.impact, *(text for text, _ in forecast.preconditions)]
    impact, *conditions = apply_obligations(texts, (Obligation(REDACT_PII),), scanner).value
    judged = zip(conditions, (holds for _, holds in forecast.preconditions), strict=True)
    return replace(forecast, impact=impact, preconditions=tuple(judged))
