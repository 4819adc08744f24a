"""The cost of a call: the price of the policy set, and what its tool reports."""

from __future__ import annotations

from services.executor.domain.results.costs import MAX_CATEGORIES, MAX_MICROS, sum_costs, total_of


def test_reported_costs_are_summed_by_category_beside_the_price() -> None:
    costs = sum_costs((("price", 5),), [("compute", 1), ("network", 2), ("compute", 3)])
    assert costs == (("price", 5), ("compute", 4), ("network", 2))
    assert total_of(costs) == 11


def test_a_tool_can_report_neither_a_price_nor_endless_categories() -> None:
    assert sum_costs((("price", 5),), [("price", 7)]) == (("price", 5), ("other", 7))
    many = sum_costs((), [(f"c{number}", 1) for number in range(100)])
    assert len(many) == MAX_CATEGORIES + 1
    assert total_of(many) == 100


def test_a_sum_stays_within_the_numbers_of_the_contract() -> None:
    assert total_of(sum_costs((("price", 1),), [("compute", 2**53)] * 2000)) == MAX_MICROS
