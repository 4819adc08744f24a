"""What trust needs from the world, and what the rest of the registry may ask it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from libs.common.tool_names import ToolName
from services.registry.domain.model import VersionHead
from services.registry.domain.trust.facts import Fact, Facts, Rating, Ratings
from services.registry.domain.trust.score import Score
from services.registry.domain.trust.stages import Stage, StageChange


class TrustScores(Protocol):
    """The score of every tool, from memory: cheap enough to ask for all of them on every search."""

    def scores_of(self, tools: Iterable[ToolName]) -> Mapping[ToolName, float]:
        """Return a score from 0 to 1 for each of these tools. One that was not worked out yet has the score of a tool
        of which nothing is known. Never waits; how old a score may be is the sweep's business."""
        ...


class TrustStore(Protocol):
    """The facts about tools, and the scores that were worked out from them."""

    async def ratings(self, tool: ToolName) -> Ratings:
        """Return how a tool is rated: the newest rating of each subject, over all versions."""
        ...

    async def rate(self, rating: Rating) -> None:
        """Store a rating in place of the same subject's earlier one of the same version."""
        ...

    async def facts(self, shown: Sequence[VersionHead]) -> Sequence[Facts]:
        """Return all that is known of tools but their usage, each by the version that it shows, in the order given. The other
        tools of one are those of its namespace: a namespace has one owner, whatever provider others write into theirs."""
        ...

    async def record(self, fact: Fact) -> str:
        """Add a fact, and return its id; the same request of the same actor again returns the id it had."""
        ...

    async def stage(self, tool: ToolName) -> Stage:
        """Return where a tool stands; submitted until said otherwise."""
        ...

    async def move_stage(self, change: StageChange) -> bool:
        """Move a tool between stages and record it; False if it was not where the change begins."""
        ...

    async def revoked(self, tool: ToolName) -> bool:
        """Say whether the tool is revoked."""
        ...

    async def put_scores(self, scores: Mapping[ToolName, Score], now: datetime) -> None:
        """Store scores, all of them or none."""
        ...

    async def unscored(self, since: datetime, limit: int) -> Sequence[tuple[ToolName, bool]]:
        """Return tools whose score is older than a moment, the oldest first, those without one before them; and whether
        they have one."""
        ...
