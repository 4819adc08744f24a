"""The ports of trust."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from libs.common.tool_names import ToolName
from services.registry.domain.model import VersionHead
from services.registry.domain.trust.facts import Fact, Facts, Rating, Ratings
from services.registry.domain.trust.score import Score
from services.registry.domain.trust.stages import Stage, StageChange
from services.registry.domain.trust.tool_trust import ToolTrust


class TrustScores(Protocol):
    """The scores of all tools, in memory."""

    def scores_of(self, tools: Iterable[ToolName]) -> Mapping[ToolName, float]:
        """Return the score, 0 to 1, of each tool; that of an unproven tool without one. Does not block."""
        ...

    def trust_in(self, tool: ToolName) -> ToolTrust:
        """Return the trust in a tool; that of an unknown one without a score. Does not block."""
        ...

    def changed_since(self, revision: int) -> tuple[int, Sequence[ToolTrust]]:
        """Return the current revision, and the trust in the tools where it changed since another one. Does not
        block."""
        ...


class TrustStore(Protocol):
    """Stores the facts about tools, and their scores."""

    async def ratings(self, tool: ToolName) -> Ratings:
        """Return the ratings of a tool over all versions; the newest of each subject counts."""
        ...

    async def rate(self, rating: Rating) -> None:
        """Store a rating; it replaces the subject's earlier one of the same version."""
        ...

    async def facts(self, shown: Sequence[VersionHead]) -> Sequence[Facts]:
        """Return the facts of tools, without usage, by their default versions and in that order. Other tools of a
        provider are those of the same namespace, which has one owner."""
        ...

    async def record(self, fact: Fact) -> str:
        """Add a fact and return its id. A retry with the same request id returns the same fact id."""
        ...

    async def stage(self, tool: ToolName) -> Stage:
        """Return the stage of a tool; SUBMITTED by default."""
        ...

    async def move_stage(self, change: StageChange) -> bool:
        """Change the stage and record it; False if the tool was not in the stage that the change starts from."""
        ...

    async def revoked(self, tool: ToolName) -> bool:
        """Return whether the tool is revoked."""
        ...

    async def put_scores(self, scores: Mapping[ToolName, Score], now: datetime) -> None:
        """Store scores in one transaction."""
        ...

    async def unscored(self, since: datetime, limit: int) -> Sequence[tuple[ToolName, bool]]:
        """Return tools whose score is missing or older than a time, missing first, and whether they have one."""
        ...
