"""Bounds the work of a proof."""

from __future__ import annotations

# Steps for one comparison of two schemas. Real contracts take a few hundred; hostile ones stop here within a fraction
# of a second.
MAX_STEPS = 10_000
# The maximum depth of a proof; well within the limits of the interpreter's stack.
MAX_DEPTH = 48


class OverBudgetError(Exception):
    """The budget of steps or depth is exhausted."""


class Budget:
    """Counts steps and depth, and stops a proof that exceeds either."""

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self.left = steps

    def spend(self, steps: int = 1) -> None:
        """Spend steps. Raises OverBudgetError when none are left."""
        self.left -= steps
        if self.left < 0:
            raise OverBudgetError

    def check_depth(self, depth: int) -> None:
        """Raise OverBudgetError when a proof is too deep."""
        if depth > MAX_DEPTH:
            raise OverBudgetError
