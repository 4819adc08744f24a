"""The report names every target with its verdict, and every row of every suite."""

from __future__ import annotations

from bench.report.markdown import machine, markdown
from bench.report.measurement import Row

FLOOR = Row("one", "floor", 16, rps=1000.0, p50_ms=1.0)
MET = Row("one", "a|b", 16, rps=600.0, p50_ms=2.0).against(FLOOR).aimed("rps", ">=", 0.5)
MISSED = Row("two", "slow", 1, rps=100.0, p50_ms=9.0).against(FLOOR).aimed("p50", "<=", 7)
HELD = Row("two", "memory", more={"MB": 1300, "by part": {"x": 1}}).held("MB <= 1200", met=False)


def lines(section: str) -> list[str]:
    text = markdown([FLOOR, MET, MISSED, HELD], {"cores": "2"}, "chart.svg")
    return text.partition(f"## {section}\n")[2].partition("\n## ")[0].strip().splitlines()


def test_every_target_stands_with_what_was_measured_and_against_what() -> None:
    met, missed, held = lines("Targets")[2:]
    assert met == "| a\\|b | 16 | rps >= 0.5 | 0.6 times as many calls as | floor | met |"
    assert missed == "| slow | 1 | p50 <= 7 | 9.0 times the wait of | floor | **missed** |"
    assert held == "| memory |  | MB <= 1200 | MB 1300 |  | **missed** |"


def test_every_suite_has_a_table_with_a_line_for_each_row() -> None:
    assert [len(lines(suite)) - 2 for suite in ("one", "two")] == [2, 2]
    # A bar within a cell would end it.
    widths = {line.replace("\\|", "").count("|") for suite in ("one", "two") for line in lines(suite)}
    assert widths == {11}


def test_the_report_says_on_what_machine_and_shows_the_chart() -> None:
    text = markdown([FLOOR], {"cores": "2"}, "chart.svg")
    assert "cores: 2" in text
    assert "(chart.svg)" in text
    assert "(chart.svg)" not in markdown([FLOOR], {}, "")
    assert set(machine()) == {"cores", "processor", "memory", "system", "python"}


def test_what_a_peer_was_run_with_is_said_once() -> None:
    rows = [Row("peers", "other", at, rps=1.0, more={"settings": "two workers"}) for at in (1, 16)]
    assert markdown(rows, {}).splitlines().count("- other: two workers") == 1
