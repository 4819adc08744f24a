"""Spans of phases, for sampled calls only."""

from __future__ import annotations

from libs.common.call_context import current_call
from libs.common.telemetry.spans import Tracing
from services.executor.domain.invocation import StartSpan


class SampledSpans:
    """Gives a span to phases of sampled calls; to all others nothing, which costs next to nothing."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    def begin(self) -> StartSpan | None:
        """Return what starts a span for a phase of the present call; None when the call is not sampled."""
        if not self._tracing.recording:
            return None
        call = current_call()
        return self._tracing.phase if call is not None and call.trace.sampled else None
