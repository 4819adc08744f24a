"""Phase spans: only for sampled calls, and only while spans are recorded."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider

from libs.common.call_context import Call, enter
from libs.common.telemetry.spans import Tracing
from libs.common.trace_context import continue_trace
from services.executor.adapters.telemetry.spans import SampledSpans


def begin(flags: str) -> None:
    enter(Call("/test", continue_trace(f"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}")))


@pytest.mark.parametrize(("flags", "sampled"), [("01", True), ("00", False)])
def test_only_a_sampled_call_gets_spans(flags: str, sampled: bool) -> None:
    begin(flags)
    assert (SampledSpans(Tracing(TracerProvider())).begin() is not None) is sampled


def test_no_spans_are_made_without_recording() -> None:
    begin("01")
    assert SampledSpans(Tracing()).begin() is None
