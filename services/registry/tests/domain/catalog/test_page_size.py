"""The response size limit."""

from __future__ import annotations

from services.registry.domain.catalog.page_size import count_fitting


def test_the_first_always_fits_and_the_budget_bounds_the_rest() -> None:
    assert count_fitting([], 10) == 0
    assert count_fitting([50], 10) == 1
    assert count_fitting([50, 0], 10) == 1
    assert count_fitting([4, 6, 1], 10) == 2
    assert count_fitting([0] * 5, 10) == 5
