"""What a preview may say of what it foresaw: no more than the caller would see of the call itself."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from libs.common.redaction.scanner import Scanner
from services.executor.domain.hooks.invocation_hooks import Hooking
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Forecast, Obligation, Payload, Verdict
from services.executor.domain.results.check import examined
from services.executor.domain.results.obligations import REDACT_PII, bind_results, fulfil
from services.executor.domain.tool import Tool


class Foretold(NamedTuple):
    """What may be answered: the forecast without its result, and the result as far as it may be seen."""

    forecast: Forecast
    result: bytes = b""
    left_out: str = ""
    shown: Payload | None = None
    """How the evidence shows the result, where one is told."""


async def foretold(
    invocation: Invocation, tool: Tool, forecast: Forecast, hooking: Hooking, scanner: Scanner
) -> Foretold:
    """Hold a forecast to what the call would be held to. Raises RESULT_INVALID, SANITIZATION_FAILED or HOOK_BLOCKED, as the call would."""
    said = _worded(invocation, replace(forecast, result=None), scanner)
    if forecast.result is None:
        return Foretold(said)
    if awaits_person(invocation):
        # It was run so that a person can judge what it would change. What it would return is only theirs to release.
        return Foretold(said, left_out="needs_approval")
    found = examined(invocation, tool, forecast.result, scanner)
    if found.large:
        return Foretold(said, left_out="too_large")
    if hooking.active:
        await hooking.after(invocation, tool, found.value)
    return Foretold(said, found.content, shown=found.shown)


def awaits_person(invocation: Invocation) -> bool:
    """Say whether a person would have to approve the call."""
    return invocation.decision is not None and invocation.decision.verdict is Verdict.NEEDS_APPROVAL


def _worded(invocation: Invocation, said: Forecast, scanner: Scanner) -> Forecast:
    """The forecast without what is personal or secret in the tool's own words, where the result is not the caller's to see as it is: a
    tool may repeat there what it read."""
    decision = invocation.decision
    if decision is None or not (awaits_person(invocation) or bind_results(decision.obligations)):
        return said
    words = [said.impact, *(text for text, _ in said.preconditions)]
    impact, *texts = fulfil(words, (Obligation(REDACT_PII),), scanner).value
    conditions = zip(texts, (holds for _, holds in said.preconditions), strict=True)
    return replace(said, impact=impact, preconditions=tuple(conditions))
