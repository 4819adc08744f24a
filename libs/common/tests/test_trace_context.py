"""Trace context: continued when well-formed, begun otherwise."""

from __future__ import annotations

import pytest

from libs.common.trace_context import clean_tracestate, continue_trace

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
        # Version 00 has four fields, and nothing behind them.
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01-",
        f"00-{TRACE}-{SPAN}-01\n",
        f"01-{TRACE}-{SPAN}-01more",
        f"00-{TRACE}-{SPAN}-1",
    ],
)
def test_a_malformed_header_begins_a_new_trace(header: str | None) -> None:
    context = continue_trace(header, sample_ratio=1.0)
    assert context.trace_id not in (TRACE, "0" * 32)
    assert context.sampled
    assert context.parent_id == ""
    assert context.traceparent.endswith("-03")


def test_a_later_version_may_have_more_fields_and_is_continued_as_version_00() -> None:
    context = continue_trace(f"cc-{TRACE}-{SPAN}-ff-more-fields")
    assert context.traceparent == f"00-{TRACE}-{context.span_id}-03"


@pytest.mark.parametrize("flags", ["00", "01", "02", "03"])
def test_the_flags_of_level_two_are_passed_on_and_no_others(flags: str) -> None:
    assert continue_trace(f"00-{TRACE}-{SPAN}-{flags}").traceparent.endswith(f"-{flags}")
    other = f"{int(flags, 16) | 0xFC:02x}"
    assert continue_trace(f"00-{TRACE}-{SPAN}-{other}").traceparent.endswith(f"-{flags}")


LONG = "long=" + "x" * 200
MANY = [f"k{number}={number}" for number in range(40)]


@pytest.mark.parametrize(
    ("header", "kept"),
    [
        ("a=1,b=2", "a=1,b=2"),
        # Spaces and tabs may stand around a member, and a member may be empty.
        ("a=1\t, \tb=2,,\t,c=3 ", "a=1,b=2,c=3"),
        ("a=1 2,tenant@system=x,0day=1,a*/-_=~", "a=1 2,tenant@system=x,0day=1,a*/-_=~"),
        ("A=1,=2,b,c=,d=\x7f,e=é,f=1=2,g=ok", "g=ok"),
        # The first of a key counts.
        ("a=1,a=2,b=3", "a=1,b=3"),
        (",".join(MANY), ",".join(MANY[:32])),
        ("x" * 257 + "=1,y=" + "v" * 257 + ",z=1", "z=1"),
        # Long members go first, then the last ones; never a part of one.
        (f"a=1,{LONG},b={'y' * 250},c={'z' * 100}", f"a=1,{LONG},c={'z' * 100}"),
        (",".join(f"k{n}={'v' * 100}" for n in range(6)), ",".join(f"k{n}={'v' * 100}" for n in range(4))),
        ("," * 100_000 + "a=1", ""),
    ],
)
def test_a_tracestate_keeps_its_valid_members_whole(header: str, kept: str) -> None:
    assert clean_tracestate(header) == kept
    assert continue_trace(f"00-{TRACE}-{SPAN}-01", header).state == kept
