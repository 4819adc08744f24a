"""Spans are for sampled calls."""

from __future__ import annotations

import pytest

from libs.common.rpc.call import Call, enter
from libs.common.telemetry.spans import Tracing
from libs.common.telemetry.trace import continue_trace
from services.executor.adapters.spans import SampledSpans


@pytest.mark.parametrize(("flags", "sampled"), [("01", True), ("00", False)])
def test_only_a_sampled_call_gets_spans(flags: str, sampled: bool) -> None:
    traceparent = f"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}"
    enter(Call("/test", continue_trace(traceparent)))
    assert (SampledSpans(Tracing()).begin() is not None) is sampled
