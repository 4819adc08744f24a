"""The load generator's manners: what it sends, and of what runs a figure is taken."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.load import generator
from bench.load.generator import STAMP, Body, Target, UnansweredError, in_turns, offer
from bench.report.measurement import Row


def test_a_body_says_whether_each_call_sends_a_number_of_its_own() -> None:
    assert Body(b"a" + STAMP.encode() + b"b").described()["stamp"] == STAMP
    assert Body(b"hello", weight=3).described() == {"weight": 3, "body": "aGVsbG8=", "stamp": ""}


def test_a_first_call_that_fails_differs_from_one_that_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "program", lambda: "false")
    with pytest.raises(UnansweredError):
        offer("s", "case", Target("h2c://127.0.0.1:1", "/a/B"), [Body(b"")], concurrency=1)


def test_two_cases_are_measured_in_turns_and_the_run_in_the_middle_counts() -> None:
    order: list[str] = []

    def runs(name: str, waits: list[float]) -> Iterator[Row]:
        for wait in waits:
            order.append(name)
            yield Row("s", name, p50_ms=wait, rps=100 / wait, cpu_us_per_call=wait % 3)

    floor, case = runs("floor", [5, 1, 4]), runs("case", [90, 70, 80])
    assert [row.p50_ms for row in in_turns(lambda: next(floor), lambda: next(case), rounds=3)] == [4, 80]
    assert order == ["floor", "case"] * 3
    floor, case = runs("floor", [5, 1, 4]), runs("case", [90, 70, 80])
    found = in_turns(lambda: next(floor), lambda: next(case), rounds=3, by="cpu_us_per_call")
    assert [row.cpu_us_per_call for row in found] == [1, 1]
