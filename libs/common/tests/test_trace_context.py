"""Trace context: continued when well-formed, begun otherwise."""

from __future__ import annotations

import pytest

from libs.common.trace_context import continue_trace

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_a_trace_is_continued_with_the_callers_sampling() -> None:
    context = continue_trace(f"00-{TRACE}-{SPAN}-01", "vendor=1", sample_ratio=0.0)
    assert (context.trace_id, context.parent_id, context.sampled, context.state) == (TRACE, SPAN, True, "vendor=1")
    assert context.traceparent == f"00-{TRACE}-{context.span_id}-01"
    assert not continue_trace(f"00-{TRACE}-{SPAN}-00", sample_ratio=1.0).sampled


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "x",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
    ],
)
def test_a_malformed_header_begins_a_new_trace(header: str | None) -> None:
    context = continue_trace(header, sample_ratio=1.0)
    assert context.trace_id not in (TRACE, "0" * 32)
    assert context.sampled
    assert context.parent_id == ""
