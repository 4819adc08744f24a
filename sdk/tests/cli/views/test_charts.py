"""Charts and figures in a terminal, wide or narrow, rich or plain."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console
from toolmesh_sdk.cli.views import charts, output
from toolmesh_sdk.cli.views.charts import (
    Column,
    bar,
    format_cost,
    format_duration,
    format_percent,
    print_columns,
    sparkline,
)

# A machine that has other things to do is slow, not wrong.
UNHURRIED = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
COUNTS = st.lists(st.integers(0, 10**9), max_size=400)
COLUMNS = [Column("NAME", name=True), Column("CALLS"), Column("DAYS", chart=True), Column("", chart=True)]
ROWS = [["did:web:example.com:agents:somebody-with-a-name", "1,234", "▁▂▃▄▅▆▇█▁▂", "██████"], ["b", "5", "▁", "▏"]]


@UNHURRIED
@given(COUNTS, st.integers(1, 60))
def test_a_line_has_a_place_for_each_value_or_its_width(values: list[int], width: int) -> None:
    assert len(sparkline(values, width)) == min(len(values), width)


def test_a_line_is_highest_where_most_is_and_flat_where_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "_supports_blocks", lambda: True)
    assert sparkline([0, 1, 500, 1000]) == "·▁▄█"
    assert sparkline([0, 0]) == "··"
    assert sparkline([1] * 20 + [3] * 20, 4) == "▃▃██"


@UNHURRIED
@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_a_bar_is_never_longer_than_its_room_nor_missing_where_something_is(value: int, more: int) -> None:
    drawn = bar(value, value + more, 12)
    assert len(drawn) <= 12
    assert bool(drawn) == (value > 0)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        *((0.0, "0"), (0.000_012_34, "12.3"), (0.000_999_9, "1"), (0.009_999, "10"), (0.0214, "21.4")),
        *((0.999_9, "1"), (1.234, "1.23"), (119.0, "119"), (600.0, "10"), (86_400.0, "24")),
    ],
)
def test_a_duration_has_three_figures(seconds: float, shown: str) -> None:
    assert format_duration(seconds).split()[0] == shown


@pytest.mark.parametrize(
    ("rate", "shown"), [(0, "0 %"), (1, "100 %"), (0.9999, "99.9 %"), (0.0001, "<0.1 %"), (0.054, "5.4 %")]
)
def test_a_rate_is_whole_only_if_it_is(rate: float, shown: str) -> None:
    assert format_percent(rate) == shown


@pytest.mark.parametrize(("micros", "shown"), [(1_234_567, "1.23"), (1_000, "0.001"), (5_000_000_000, "5,000.00")])
def test_a_cost_is_in_units(micros: int, shown: str) -> None:
    assert format_cost(micros) == shown


def test_a_stream_without_blocks_gets_plain_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "_supports_blocks", lambda: False)
    assert (sparkline([0, 1, 2, 3]) + bar(1, 3) + format_duration(0.0001)).isascii()


def terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> io.StringIO:
    written = io.StringIO()
    monkeypatch.setattr(
        output, "out", lambda: Console(file=written, width=width, force_terminal=True, color_system=None)
    )
    return written


@pytest.mark.parametrize("width", [30, 40, 60, 80, 120])
def test_no_line_is_wider_than_the_terminal_and_no_chart_is_cut(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    written = terminal(monkeypatch, width)
    print_columns(COLUMNS, ROWS)
    lines = written.getvalue().splitlines()
    assert max(len(line) for line in lines) <= width
    text = "".join(line.split("  ")[0].strip() for line in lines)
    assert "somebody-with-a-name" in text
    for chart in ("▁▂▃▄▅▆▇█▁▂", "██████"):
        assert chart in written.getvalue() or chart[:3] not in written.getvalue()
    assert ("██████" in written.getvalue()) == (width >= 60)


def test_a_pipe_gets_every_column_in_one_line(capsys: Any) -> None:
    print_columns(COLUMNS, ROWS)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[1].split() == ROWS[0]


def test_a_column_without_content_is_left_out(capsys: Any) -> None:
    print_columns([*COLUMNS[:2], Column("COST")], [["a", "1", ""], ["b", "2", ""]])
    assert "COST" not in capsys.readouterr().out


def test_control_characters_of_names_are_shown_not_sent(capsys: Any) -> None:
    print_columns(COLUMNS[:2], [["evil\x1b[31m", "1"]])
    assert "\x1b" not in capsys.readouterr().out
