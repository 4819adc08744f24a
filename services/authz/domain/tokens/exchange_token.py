"""ExchangeToken: exchanges a token of a trusted external issuer for a user token of this mesh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from libs.common.auth.authority import USER, Authority
from libs.common.errors import Violation
from services.authz.domain.errors import authority_exceeded, grant_refused, parent_expired
from services.authz.domain.model import IssuedToken, Minting
from services.authz.domain.ports import ExternalTokenVerifier
from services.authz.domain.tokens.grants import lifetime_violations
from services.authz.domain.tokens.minter import TokenMinter


@dataclass(frozen=True)
class ExchangeToken:
    """Grants the authority that is configured for the external issuer, never that of the external token."""

    minter: TokenMinter
    verifier: ExternalTokenVerifier
    audience: str

    async def execute(
        self, token: str, *, lifetime: float | None = None, confirmation: str = "", scopes: Sequence[str] = ()
    ) -> IssuedToken:
        """Return a token with these scopes, or all that are granted, that expires no later than the external one.

        Raises a TOKEN_ reason if that one is invalid, and AUTHORITY_EXCEEDED for a scope that is not granted.
        """
        external = await self.verifier.verify(token)
        excess = sorted(set(scopes) - set(external.grant.scopes))
        if excess:
            raise authority_exceeded([Violation("scopes", "authority.scopes", f"not granted: {', '.join(excess)}")])
        violations = [*lifetime_violations(lifetime, external.grant.lifetime)]
        if violations:
            raise grant_refused(violations)
        now = self.minter.now()
        end = min(int(external.expires_at), now + (external.grant.lifetime if lifetime is None else int(lifetime)))
        if end <= now:
            raise parent_expired()
        return await self.minter.mint(
            Authority(
                subject=external.subject,
                tier=USER,
                tools=external.grant.tools,
                scopes=frozenset(scopes or external.grant.scopes),
                resources=external.grant.resources,
                depth=external.grant.depth,
                audiences=(self.audience,),
                not_before=now,
                expires_at=end,
                tenant=external.tenant,
                trust_level=external.grant.trust_level,
                groups=external.groups,
                confirmation=confirmation,
            ),
            minting=Minting.EXCHANGED,
        )
