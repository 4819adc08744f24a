"""FilterTools: says which tools a caller may use, before it is known what with."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from libs.common.auth.identity import Identity
from libs.common.errors import Reason
from services.authz.domain.decisions.check import Check
from services.authz.domain.model import Allow, CallFacts, Decision, Deny

_AT_ONCE = 20


class Usability(StrEnum):
    """Whether a caller may use a tool."""

    ALLOWED = "ALLOWED"
    NEEDS_APPROVAL = "NEEDS_APPROVAL"
    DENIED = "DENIED"


@dataclass(frozen=True)
class FilterTools:
    """Asks about tools without arguments."""

    check: Check

    async def __call__(self, caller: Identity, tools: Sequence[CallFacts]) -> tuple[list[Usability], str]:
        """Return an answer a tool, in the order asked, and the version of the policies. Nothing is recorded."""
        engine, found = self.check.engines.current, []
        for index, tool in enumerate(tools):
            if index % _AT_ONCE == 0:
                # A long list must not hold up everyone else's calls.
                await asyncio.sleep(0)
            found.append(_usability(await self.check.preview(caller, tool, engine)))
        return found, engine.version


def _usability(decision: Decision) -> Usability:
    outcome, verdict = decision.verdict.outcome, decision.verdict
    if isinstance(outcome, Allow):
        return Usability.ALLOWED
    if not isinstance(outcome, Deny):
        return Usability.NEEDS_APPROVAL
    if verdict.holds_for_any_arguments or outcome.reason is Reason.POLICY_ENGINE_ERROR:
        return Usability.DENIED
    # The answer may be another one once the arguments are known, and the call itself will be asked about.
    return Usability.ALLOWED
