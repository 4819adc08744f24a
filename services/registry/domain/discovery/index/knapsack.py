"""Selects the most valuable pieces within a token budget (0/1 knapsack)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# The largest table of the exact solution, in cells. Larger problems use the greedy one.
EXACT_CELLS = 2_000_000


def choose(utilities: Sequence[float], tokens: Sequence[int], budget: int) -> list[int]:
    """Return the positions of the pieces to take: the optimum where it is cheap to compute, else an approximation."""
    if len(tokens) * (budget + 1) <= EXACT_CELLS:
        return exact(utilities, tokens, budget)
    return greedy(utilities, tokens, budget)


def greedy(utilities: Sequence[float], tokens: Sequence[int], budget: int) -> list[int]:
    """Take pieces by utility per token while they fit, or the single best piece if that alone is worth more. The result
    is worth at least half of the optimum."""
    order = sorted(range(len(tokens)), key=lambda at: -utilities[at] / max(tokens[at], 1))
    taken, left = [], budget
    for at in order:
        if tokens[at] <= left and utilities[at] > 0:
            taken.append(at)
            left -= tokens[at]
    single = max((at for at in order if tokens[at] <= budget), key=lambda at: utilities[at], default=None)
    if single is not None and utilities[single] > sum(utilities[at] for at in taken):
        return [single]
    return sorted(taken)


def exact(utilities: Sequence[float], tokens: Sequence[int], budget: int) -> list[int]:
    """Return the optimum by dynamic programming over the budget."""
    best = np.zeros(budget + 1)
    takes = np.zeros((len(tokens), budget + 1), dtype=np.bool_)
    for at, (utility, cost) in enumerate(zip(utilities, tokens, strict=True)):
        if cost > budget or utility <= 0:
            continue
        with_it = best[: budget + 1 - cost] + utility
        better = with_it > best[cost:]
        takes[at, cost:] = better
        best[cost:] = np.where(better, with_it, best[cost:])
    taken, left = [], budget
    for at in range(len(tokens) - 1, -1, -1):
        if takes[at, left]:
            taken.append(at)
            left -= tokens[at]
    return taken[::-1]
