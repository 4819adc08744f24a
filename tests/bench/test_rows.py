"""What a measurement is, and how it is reported."""

from __future__ import annotations

import json
from pathlib import Path

from bench.report.measurement import Row, document, table, targets, write

FLOOR = Row("s", "floor", 16, rps=1000.0, p50_ms=1.0, p99_ms=4.0, cpu_us_per_call=100.0)
CASE = Row("s", "case", 16, rps=400.0, p50_ms=3.0, p99_ms=8.0, cpu_us_per_call=250.0)


def test_a_ratio_is_what_a_case_has_over_what_its_floor_has() -> None:
    ratio = CASE.against(FLOOR).ratio
    assert ratio is not None
    assert (ratio.to, ratio.rps, ratio.p50, ratio.p99, ratio.cpu) == ("floor", 0.4, 3.0, 2.0, 2.5)
    # Where there is always a next call, a call takes one over the calls a second.
    assert ratio.time == 2.5


def test_a_target_is_met_on_the_right_side_of_its_bound() -> None:
    row = CASE.against(FLOOR)
    found = [row.aimed("rps", ">=", bound) for bound in (0.3, 0.4, 0.5)]
    found += [row.aimed("p50", "<=", bound) for bound in (2.9, 3.0, 3.1)]
    assert [each.ratio.met for each in found if each.ratio] == [True, True, False, False, True, True]
    assert found[0].ratio is not None
    assert found[0].ratio.target == "rps >= 0.3"


def test_a_figure_that_was_not_measured_meets_no_target() -> None:
    row = Row("s", "empty", 16).against(FLOOR).aimed("p50", "<=", 100)
    assert row.ratio is not None
    assert row.ratio.met is False


def test_targets_are_the_rows_that_aim_at_something() -> None:
    held = Row("s", "memory", more={"MB": 5}).held("MB <= 4", met=False)
    assert targets([FLOOR, CASE.against(FLOOR), held]) == [held]


def test_the_json_has_one_object_for_each_case(tmp_path: Path) -> None:
    write([FLOOR, CASE.against(FLOOR)], tmp_path / "results" / "latest.json")
    floor, case = json.loads((tmp_path / "results" / "latest.json").read_text())
    assert {"suite", "case", "concurrency", "rps", "p50_ms", "p95_ms", "p99_ms", "cpu_us_per_call", "ratio"} <= set(
        floor
    )
    assert floor["ratio"] is None
    assert (case["ratio"]["to"], case["ratio"]["rps"]) == ("floor", 0.4)
    assert json.loads(document([])) == []


def test_the_table_leaves_to_the_json_what_is_long() -> None:
    more = {"offered_rps": 5, "cpu_us_by_process": {"executor": 1.0}, "settings": "many words"}
    heading, line = table([Row("s", "case", 16, rps=1.0, more=more)])
    assert "offered_rps 5" in line
    assert "executor" not in line
    assert "many words" not in line
    assert heading.startswith("case")
