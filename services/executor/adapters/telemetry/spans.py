"""Starts phase spans for sampled calls."""

from __future__ import annotations

from libs.common.call_context import current_call
from libs.common.telemetry.spans import Tracing
from services.executor.domain.invocation import StartSpan


class SampledSpans:
    """Starts spans only for sampled calls, so that other calls pay next to nothing."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    def begin(self) -> StartSpan | None:
        """Return the function that starts a phase span of the current call; None if the call is not sampled."""
        if not self._tracing.recording:
            return None
        call = current_call()
        return self._tracing.phase if call is not None and call.trace.sampled else None
