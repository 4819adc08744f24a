"""The index with everything that is asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from services.registry.domain.discovery.environment import Place, Survey
from services.registry.domain.discovery.index.eligibility import survey
from services.registry.domain.discovery.index.knapsack import choose
from services.registry.domain.discovery.index.tools import ToolIndex
from services.registry.domain.discovery.query import Query


class Engine(ToolIndex):
    """Answers searches and surveys, and chooses what is worth its tokens."""

    def survey(self, query: Query, place: Place, now: datetime) -> Survey:
        """Return where every tool stands for a task in a place."""
        return survey(self, query, place, now)

    def worth(self, utilities: Sequence[float], tokens: Sequence[int], budget: int) -> Sequence[int]:
        """Return the positions of the pieces to take."""
        return choose(utilities, tokens, budget)
