"""FilterTools: returns which tools a caller may use, before arguments are known."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from libs.common.auth.identity import Identity
from libs.common.errors import Reason
from services.authz.domain.decisions.check import Check
from services.authz.domain.model import Allow, CallFacts, Decision, Deny

_TOOLS_PER_YIELD = 20


class Usability(StrEnum):
    """The result for one tool."""

    ALLOWED = "ALLOWED"
    NEEDS_APPROVAL = "NEEDS_APPROVAL"
    DENIED = "DENIED"


@dataclass(frozen=True)
class FilterTools:
    """Previews decisions about tools without arguments."""

    check: Check

    async def execute(self, caller: Identity, tools: Sequence[CallFacts]) -> tuple[list[Usability], str]:
        """Return one result per tool, in request order, and the policy set version. Nothing is recorded."""
        engine, results = self.check.engines.current, []
        for index, tool in enumerate(tools):
            if index % _TOOLS_PER_YIELD == 0:
                # Lets other calls run during a long list.
                await asyncio.sleep(0)
            results.append(_usability(await self.check.preview(caller, tool, engine)))
        return results, engine.version


def _usability(decision: Decision) -> Usability:
    outcome, verdict = decision.verdict.outcome, decision.verdict
    if isinstance(outcome, Allow):
        return Usability.ALLOWED
    if not isinstance(outcome, Deny):
        return Usability.NEEDS_APPROVAL
    if verdict.holds_for_any_arguments or outcome.reason is Reason.POLICY_ENGINE_ERROR:
        return Usability.DENIED
    # The decision may change once the arguments are known; the call itself is checked again.
    return Usability.ALLOWED
