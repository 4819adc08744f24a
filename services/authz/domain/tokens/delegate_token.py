"""DelegateToken: delegates a subset of the caller's authority to an agent."""

from __future__ import annotations

from dataclasses import dataclass, replace

from libs.common.auth.authority import AGENT
from libs.common.auth.identity import Identity
from libs.common.errors import Violation
from services.authz.domain.errors import did_not_found, grant_refused
from services.authz.domain.model import Attenuation, IssuedToken
from services.authz.domain.ports import DidResolver
from services.authz.domain.tokens.deriver import TokenDeriver


@dataclass(frozen=True)
class DelegateToken:
    """Derives tokens for agents."""

    deriver: TokenDeriver
    dids: DidResolver

    async def execute(
        self,
        parent: Identity,
        agent: str,
        attenuation: Attenuation,
        *,
        depth: int | None = None,
        bind_to_agent_key: bool = False,
    ) -> IssuedToken:
        """Return the agent's token. Raises DID_NOT_FOUND if the agent's DID cannot be resolved."""
        resolved = await self.dids.resolve(agent)
        if bind_to_agent_key:
            attenuation = _bind_to_key(attenuation, agent, resolved.thumbprints)
        # A parent at depth 0 cannot be delegated: the subset rule refuses a negative depth.
        child_depth = parent.depth - 1 if depth is None else depth
        return await self.deriver.derive(parent, attenuation, tier=AGENT, agent=agent, depth=child_depth)


def _bind_to_key(attenuation: Attenuation, agent: str, thumbprints: tuple[str, ...]) -> Attenuation:
    if attenuation.confirmation:
        message = "cannot be combined with bind_to_agent_key"
        raise grant_refused([Violation("part.confirmation", "confirmation.agent_key", message)])
    if not thumbprints:
        raise did_not_found(agent)
    return replace(attenuation, confirmation=f"jkt:{thumbprints[0]}")
