"""NarrowToken: derives a token for one tool and one invocation."""

from __future__ import annotations

from dataclasses import dataclass

from libs.common.auth.authority import INVOCATION
from libs.common.auth.identity import Identity
from libs.common.errors import Violation
from services.authz.domain.errors import grant_refused
from services.authz.domain.model import Attenuation, IssuedToken
from services.authz.domain.tokens.deriver import TokenDeriver
from services.authz.domain.tokens.grants import is_tool_name


@dataclass(frozen=True)
class NarrowToken:
    """Derives invocation tokens, which cannot be delegated further."""

    deriver: TokenDeriver

    async def execute(self, parent: Identity, attenuation: Attenuation) -> IssuedToken:
        """Return the token. Raises INVALID_REQUEST unless exactly one tool is named, without a wildcard."""
        if len(attenuation.tools) != 1 or not is_tool_name(attenuation.tools[0].tool):
            message = "must name exactly one tool, without a wildcard"
            raise grant_refused([Violation("part.tools", "narrow.one_tool", message)])
        return await self.deriver.derive(parent, attenuation, tier=INVOCATION, agent=parent.agent, depth=0)
