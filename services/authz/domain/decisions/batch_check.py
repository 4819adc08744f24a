"""BatchCheck: decides about many calls of one caller with one policy set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from libs.common.auth.identity import Identity
from services.authz.domain.decisions.check import Check
from services.authz.domain.model import CallFacts, Decision


@dataclass(frozen=True)
class BatchCheck:
    """Runs Check for many calls; all of them succeed or none."""

    check: Check

    async def execute(self, caller: Identity, calls: Sequence[CallFacts]) -> list[Decision]:
        """Return the decisions in request order. Raises POLICY_ENGINE_ERROR when one of them fails."""
        engine = self.check.engines.current
        return [await self.check.decide(caller, call, engine) for call in calls]
