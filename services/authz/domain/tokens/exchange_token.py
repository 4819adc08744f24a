"""ExchangeToken: turns the token of a trusted outside issuer into a user's token of this mesh."""

from __future__ import annotations

from dataclasses import dataclass

from libs.common.auth.authority import USER, Authority
from services.authz.domain.errors import grant_refused, parent_over
from services.authz.domain.model import IssuedToken
from services.authz.domain.ports import OutsideTokens
from services.authz.domain.tokens.grants import lifetime_refusals
from services.authz.domain.tokens.mint import Mint


@dataclass(frozen=True)
class ExchangeToken:
    """Grants to outside users what the configuration of their issuer says, and nothing that their token says."""

    mint: Mint
    outside: OutsideTokens
    audience: str

    async def __call__(self, token: str, *, lifetime: float | None = None, confirmation: str = "") -> IssuedToken:
        """Return a token that ends no later than the one shown. Raises the TOKEN_ reason that the outside token deserves."""
        shown = await self.outside.verify(token)
        violations = [*lifetime_refusals(lifetime, shown.grant.lifetime)]
        if violations:
            raise grant_refused(violations)
        now = self.mint.now()
        end = min(int(shown.expires_at), now + (shown.grant.lifetime if lifetime is None else int(lifetime)))
        if end <= now:
            raise parent_over()
        return await self.mint(
            Authority(
                subject=shown.subject,
                tier=USER,
                tools=shown.grant.tools,
                scopes=frozenset(shown.grant.scopes),
                resources=shown.grant.resources,
                depth=shown.grant.depth,
                audiences=(self.audience,),
                not_before=now,
                expires_at=end,
                tenant=shown.tenant,
                trust_level=shown.grant.trust_level,
                groups=shown.groups,
                confirmation=confirmation,
            )
        )
