"""W3C Trace Context level 2, parsed by hand: unsampled calls on the warm path cannot afford a tracing framework."""

from __future__ import annotations

import random
import re
from typing import NamedTuple

from libs.common.ids import new_span_id, new_trace_id

# Version 00 has exactly four fields; a later version may have more. `ff` is not a version.
_TRACEPARENT = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_ZERO_TRACE, _ZERO_SPAN = "0" * 32, "0" * 16
_SAMPLED, _RANDOM = 1, 2
# A list member of `tracestate`: a key, and a value that does not end with a space.
_MEMBER = re.compile(r"([a-z0-9][a-z0-9_\-*/@]{0,255})=[ -+\--<>-~]{0,255}[!-+\--<>-~]")
_MAX_MEMBERS = 32
# Longer ones are cut between members, those above 128 characters first, as the recommendation asks.
_MAX_STATE, _LONG_MEMBER = 512, 128


class TraceContext(NamedTuple):
    """The trace context of a call. A tuple, because one is made for every call."""

    trace_id: str
    span_id: str
    parent_id: str
    sampled: bool
    state: str = ""
    random: bool = False
    """Whether the last seven bytes of the trace id are random, as far as the caller said."""

    @property
    def traceparent(self) -> str:
        """The `traceparent` header for the next hop."""
        return f"00-{self.trace_id}-{self.span_id}-0{self.sampled * _SAMPLED | self.random * _RANDOM}"


class RemoteTrace(NamedTuple):
    """The trace headers of a caller, not yet parsed."""

    traceparent: str | None
    tracestate: str
    sample_ratio: float

    def continued(self) -> TraceContext:
        """Continue the caller's trace, or begin one."""
        return continue_trace(self.traceparent, self.tracestate, sample_ratio=self.sample_ratio)


def continue_trace(traceparent: str | None, tracestate: str = "", *, sample_ratio: float = 0.0) -> TraceContext:
    """Continue the caller's trace and its flags, or begin a trace. A malformed `traceparent` is ignored, with its
    `tracestate`."""
    fields = _fields(traceparent) if traceparent else None
    if fields is None:
        sampled = sample_ratio > 0 and random.random() < sample_ratio  # noqa: S311  (sampling, not a secret)
        return TraceContext(new_trace_id(), new_span_id(), "", sampled, random=True)
    trace_id, parent_id, flags = fields
    return TraceContext(
        trace_id,
        new_span_id(),
        parent_id,
        bool(flags & _SAMPLED),
        clean_tracestate(tracestate) if tracestate else "",
        bool(flags & _RANDOM),
    )


def _fields(traceparent: str) -> tuple[str, str, int] | None:
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None:
        return None
    version, trace_id, parent_id, flags, more = match.groups()
    if trace_id == _ZERO_TRACE or parent_id == _ZERO_SPAN or (more is not None and version == "00"):
        return None
    return trace_id, parent_id, int(flags, 16)


def clean_tracestate(header: str) -> str:
    """Return the valid members of a `tracestate`, each key once, at most 32 and 512 characters of them."""
    members: dict[str, str] = {}
    # Bounded, because a header may have far more commas than members count.
    for text in header.split(",", 4 * _MAX_MEMBERS)[: 4 * _MAX_MEMBERS]:
        member = text.strip(" \t")
        match = _MEMBER.fullmatch(member)
        if match is not None and match.group(1) not in members and len(members) < _MAX_MEMBERS:
            members[match.group(1)] = member
    kept = list(members.values())
    size = sum(map(len, kept)) + len(kept) - 1
    for place in reversed(range(len(kept))):
        if size > _MAX_STATE and len(kept[place]) > _LONG_MEMBER:
            size -= len(kept.pop(place)) + 1
    while size > _MAX_STATE:
        size -= len(kept.pop()) + 1
    return ",".join(kept)
