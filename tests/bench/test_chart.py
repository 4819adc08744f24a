"""The chart: shares of the bare echo, drawn to one scale."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest

from bench.report.chart import FLOOR, SHADES, Group, groups, svg
from bench.report.measurement import Row
from bench.suites import CHARTED

SPACE = "{http://www.w3.org/2000/svg}"
KINDS = {FLOOR: "floor", "ours <&>": "ours", "theirs": "peer", "never run": "peer"}
ROWS = [
    Row("floor", FLOOR, 1, rps=1000.0),
    Row("floor", FLOOR, 16, rps=2000.0),
    Row("ours", "ours <&>", 1, rps=500.0),
    Row("ours", "ours <&>", 16, rps=1500.0),
    Row("ours", "ours <&>", 16, rps=10.0, more={"offered_rps": 10}),
    Row("ours", "ours <&>", 128, rps=1500.0),
    Row("peers", "theirs", 16, rps=20.0),
]


def test_a_share_is_of_the_bare_echo_at_the_same_concurrency() -> None:
    assert groups(ROWS, KINDS) == [
        Group(FLOOR, "floor", ((1, 1.0), (16, 1.0))),
        # What was held back to a rate says nothing of how many calls can be had, and 128 has no floor here.
        Group("ours <&>", "ours", ((1, 0.5), (16, 0.75))),
        Group("theirs", "peer", ((16, 0.01),)),
    ]


def test_without_a_floor_there_is_nothing_to_draw() -> None:
    assert groups(ROWS[2:], KINDS) == []


def test_bars_are_as_long_as_the_shares_they_stand_for() -> None:
    drawn = groups(ROWS, KINDS)
    picture = ElementTree.fromstring(svg(drawn))  # noqa: S314 - our own text
    bars = [bar for bar in picture.iter(f"{SPACE}rect") if bar.find(f"{SPACE}title") is not None]
    widths = [float(bar.attrib["width"]) for bar in bars]
    shares = [share for group in drawn for _, share in group.shares]
    assert [width / widths[0] for width in widths] == pytest.approx(shares, abs=0.01)
    # Nothing lies over anything else, and everything lies within the picture.
    tops = [float(bar.attrib["y"]) for bar in bars]
    assert all(later - earlier >= float(bars[0].attrib["height"]) for earlier, later in pairwise(tops))
    assert tops[-1] < float(picture.attrib["height"])
    assert max(float(bar.attrib["x"]) + float(bar.attrib["width"]) for bar in bars) < float(picture.attrib["width"])


def test_names_survive_as_they_are() -> None:
    picture = ElementTree.fromstring(svg(groups(ROWS, KINDS)))  # noqa: S314 - our own text
    assert "ours <&>" in [text.text for text in picture.iter(f"{SPACE}text")]


def test_every_case_that_is_charted_has_colours() -> None:
    assert set(CHARTED.values()) == set(SHADES)
    assert FLOOR in CHARTED
