"""The search index with eligibility and budget selection."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from services.registry.domain.discovery.environment import Eligibility, SurfaceEnvironment
from services.registry.domain.discovery.index.eligibility import assess_eligibility
from services.registry.domain.discovery.index.knapsack import choose
from services.registry.domain.discovery.index.tools import ToolIndex
from services.registry.domain.discovery.query import Query


class SearchEngine(ToolIndex):
    """Searches tools, assesses their eligibility, and selects pieces within a token budget."""

    def assess_eligibility(self, query: Query, environment: SurfaceEnvironment, now: datetime) -> Eligibility:
        """Return the eligibility of every tool for a task in an environment."""
        return assess_eligibility(self, query, environment, now)

    def select_within_budget(self, utilities: Sequence[float], tokens: Sequence[int], budget: int) -> Sequence[int]:
        """Return the positions of the pieces to take."""
        return choose(utilities, tokens, budget)
