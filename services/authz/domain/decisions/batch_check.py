"""BatchCheck: decides about many calls of one caller under one set of policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from libs.common.auth.identity import Identity
from services.authz.domain.decisions.check import Check
from services.authz.domain.model import CallFacts, Decision


@dataclass(frozen=True)
class BatchCheck:
    """Puts many questions like Check, and answers all of them or none."""

    check: Check

    async def __call__(self, caller: Identity, calls: Sequence[CallFacts]) -> list[Decision]:
        """Return the decisions in the order asked. Raises POLICY_ENGINE_ERROR when one of them could not be made."""
        engine = self.check.engines.current
        return [await self.check(caller, call, engine) for call in calls]
