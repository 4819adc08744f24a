"""How fast something grows."""

from __future__ import annotations

import pytest

from bench.report.slope import settled, slope_per_hour


def test_a_straight_line_has_its_slope() -> None:
    assert slope_per_hour([(second, 100 + second * 2.0) for second in range(0, 60, 5)]) == pytest.approx(7200)
    assert slope_per_hour([(second, 100 - second / 36) for second in range(0, 60, 5)]) == pytest.approx(-100)


def test_what_wavers_around_one_value_does_not_grow() -> None:
    samples = [(float(second), 100.0 + (second % 2)) for second in range(101)]
    assert slope_per_hour(samples) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("samples", [[], [(1.0, 5.0)], [(1.0, 5.0), (1.0, 9.0)]])
def test_too_few_samples_say_nothing(samples: list[tuple[float, float]]) -> None:
    assert slope_per_hour(samples) == 0


def test_the_beginning_does_not_count() -> None:
    samples = [(float(second), 0.0 if second < 25 else 80.0) for second in range(0, 101, 5)]
    assert [second for second, _ in settled(samples)] == list(range(25, 101, 5))
    assert slope_per_hour(settled(samples)) == 0
    assert settled([]) == []
