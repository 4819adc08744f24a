"""Bounded work: a proof that would take too long is no proof."""

from __future__ import annotations

# What one comparison of two schemas may cost. Real contracts take a few hundred steps; hostile ones end here, after a
# fraction of a second.
MAX_STEPS = 10_000
# How deep a proof may go; well within what the interpreter's stack holds.
MAX_DEPTH = 48


class OverBudgetError(Exception):
    """The work that was allowed is used up."""


class Budget:
    """Counts steps and depth, and ends a proof that takes too much of either."""

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self.left = steps

    def spend(self, steps: int = 1) -> None:
        """Use up steps; raise when none are left."""
        self.left -= steps
        if self.left < 0:
            raise OverBudgetError

    def check_depth(self, depth: int) -> None:
        """Raise when a proof is deeper than allowed."""
        if depth > MAX_DEPTH:
            raise OverBudgetError
