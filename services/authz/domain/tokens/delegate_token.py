"""DelegateToken: passes a part of the caller's authority on to an agent."""

from __future__ import annotations

from dataclasses import dataclass, replace

from libs.common.auth.authority import AGENT
from libs.common.auth.identity import Identity
from libs.common.errors import Violation
from services.authz.domain.errors import did_not_found, grant_refused
from services.authz.domain.model import IssuedToken, Part
from services.authz.domain.ports import DidResolver
from services.authz.domain.tokens.derive import Derive


@dataclass(frozen=True)
class DelegateToken:
    """Makes agents' tokens."""

    derive: Derive
    dids: DidResolver

    async def __call__(
        self, parent: Identity, agent: str, part: Part, *, depth: int | None = None, bind_to_agent_key: bool = False
    ) -> IssuedToken:
        """Return the agent's token. Raises DID_NOT_FOUND for an agent that nobody vouches for."""
        resolved = await self.dids.resolve(agent)
        if bind_to_agent_key:
            part = _bound(part, agent, resolved.thumbprints)
        # A parent that may not be passed on has nothing less to give: the subset rule refuses what is below zero.
        passed = parent.depth - 1 if depth is None else depth
        return await self.derive(parent, part, tier=AGENT, agent=agent, depth=passed)


def _bound(part: Part, agent: str, thumbprints: tuple[str, ...]) -> Part:
    if part.confirmation:
        message = "leaves no room for the agent's own key"
        raise grant_refused([Violation("part.confirmation", "confirmation.agent_key", message)])
    if not thumbprints:
        raise did_not_found(agent)
    return replace(part, confirmation=f"jkt:{thumbprints[0]}")
