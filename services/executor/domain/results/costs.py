"""The cost of a call by category: its price in the policy set, and the parts that its tool reports. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from services.executor.domain.invocation import Invocation

Costs = tuple[tuple[str, int], ...]

PRICE, OTHER = "price", "other"
"""The categories of the policy set's price, and of what exceeds MAX_CATEGORIES."""
MAX_CATEGORIES = 16
MAX_MICROS = 2**63 - 1


def price_of(invocation: Invocation) -> Costs:
    """Return the price of a call that runs, whatever becomes of it. A preview has none."""
    decision = invocation.decision
    if decision is None or not decision.cost_micros or invocation.preview:
        return ()
    return ((PRICE, decision.cost_micros),)


def sum_costs(price: Costs, reported: Iterable[tuple[str, int]]) -> Costs:
    """Return the price and the sum of each reported category.

    A tool cannot report a price: such a part counts as other, as do the categories beyond the limit.
    """
    sums: dict[str, int] = {}
    for category, micros in reported:
        known = category in sums or len(sums) < MAX_CATEGORIES
        name = category if known and category != PRICE else OTHER
        sums[name] = sums.get(name, 0) + micros
    return (*price, *((name, min(micros, MAX_MICROS)) for name, micros in sums.items()))


def total_of(costs: Costs) -> int:
    """Return the sum of all categories."""
    return min(sum(micros for _, micros in costs), MAX_MICROS)
