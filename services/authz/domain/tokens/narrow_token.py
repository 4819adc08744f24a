"""NarrowToken: cuts the caller's authority down to one tool, for one invocation."""

from __future__ import annotations

from dataclasses import dataclass

from libs.common.auth.authority import INVOCATION
from libs.common.auth.identity import Identity
from libs.common.errors import Violation
from services.authz.domain.errors import grant_refused
from services.authz.domain.model import IssuedToken, Part
from services.authz.domain.tokens.derive import Derive
from services.authz.domain.tokens.grants import names_a_tool


@dataclass(frozen=True)
class NarrowToken:
    """Makes tokens for one tool, from which nothing can be derived."""

    derive: Derive

    async def __call__(self, parent: Identity, part: Part) -> IssuedToken:
        """Return the token. Raises INVALID_REQUEST unless the part names exactly one tool, without a wildcard."""
        if len(part.tools) != 1 or not names_a_tool(part.tools[0].tool):
            message = "must name exactly one tool, without a wildcard"
            raise grant_refused([Violation("part.tools", "narrow.one_tool", message)])
        return await self.derive(parent, part, tier=INVOCATION, agent=parent.agent, depth=0)
