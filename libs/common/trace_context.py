"""W3C trace context, parsed by hand: unsampled calls on the warm path cannot afford a tracing framework."""

from __future__ import annotations

import random
import re
from typing import NamedTuple

from libs.common.ids import new_span_id, new_trace_id

_TRACEPARENT = re.compile(r"^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$")
_ZERO_TRACE, _ZERO_SPAN = "0" * 32, "0" * 16


class TraceContext(NamedTuple):
    """The trace context of a call. A tuple, because one is made for every call."""

    trace_id: str
    span_id: str
    parent_id: str
    sampled: bool
    state: str = ""

    @property
    def traceparent(self) -> str:
        """The `traceparent` header for the next hop."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"


class RemoteTrace(NamedTuple):
    """The trace headers of a caller, not yet parsed."""

    traceparent: str | None
    tracestate: str
    sample_ratio: float

    def continued(self) -> TraceContext:
        """Continue the caller's trace, or begin one."""
        return continue_trace(self.traceparent, self.tracestate, sample_ratio=self.sample_ratio)


def continue_trace(traceparent: str | None, tracestate: str = "", *, sample_ratio: float = 0.0) -> TraceContext:
    """Continue the caller's trace and its sampling decision, or begin a trace. Malformed headers are ignored."""
    match = _TRACEPARENT.match(traceparent) if traceparent and not traceparent.startswith("ff") else None
    if match is None or match.group(1) == _ZERO_TRACE or match.group(2) == _ZERO_SPAN:
        sampled = sample_ratio > 0 and random.random() < sample_ratio  # noqa: S311  (sampling, not a secret)
        return TraceContext(new_trace_id(), new_span_id(), "", sampled)
    sampled = bool(int(match.group(3), 16) & 1)
    return TraceContext(match.group(1), new_span_id(), match.group(2), sampled, tracestate[:512])
