"""IssueToken: mints a user-tier token that carries exactly what was asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from libs.common.auth.authority import USER, Authority
from libs.common.errors import Violation
from services.authz.domain.errors import grant_refused
from services.authz.domain.model import IssuedToken, TokenRequest
from services.authz.domain.tokens.grants import (
    Compiles,
    audience_refusals,
    lifetime_refusals,
    read_constraints,
    tool_refusals,
)
from services.authz.domain.tokens.mint import Mint

DEFAULT_LIFETIME = 3600
DEFAULT_DEPTH = 3


@dataclass(frozen=True)
class IssueToken:
    """Makes authority out of nothing, within the issuer's limits."""

    mint: Mint
    audience: str
    max_lifetime: int
    compiles: Compiles

    async def __call__(self, asked: TokenRequest) -> IssuedToken:
        """Return the token. Raises INVALID_REQUEST for what cannot be granted."""
        violations = [*refusals(asked, self.max_lifetime)]
        if violations:
            raise grant_refused(violations)
        return await self.mint.asked(self._authority(asked))

    def _authority(self, asked: TokenRequest) -> Authority:
        now = self.mint.now()
        # Times are whole seconds. A fraction is dropped, so that no token outlives what was asked.
        lifetime = min(DEFAULT_LIFETIME, self.max_lifetime) if asked.lifetime is None else int(asked.lifetime)
        return Authority(
            subject=asked.subject,
            tier=USER,
            tools=asked.tools,
            scopes=frozenset(asked.scopes),
            resources=asked.resources,
            argument_constraints=read_constraints(asked.argument_constraints, self.compiles),
            budget=asked.budget,
            depth=DEFAULT_DEPTH if asked.depth is None else asked.depth,
            audiences=asked.audiences or (self.audience,),
            not_before=now,
            expires_at=now + lifetime,
            tenant=asked.tenant,
            trust_level=asked.trust_level,
            groups=asked.groups,
            session_id=asked.session_id,
            confirmation=asked.confirmation,
        )


def refusals(asked: TokenRequest, max_lifetime: int) -> Iterator[Violation]:
    """Yield everything about a request that the contract's own rules cannot see and that no token may carry."""
    if not asked.tools and not asked.scopes:
        yield Violation("tools", "grant.empty", "a token must grant a tool or a scope")
    yield from lifetime_refusals(asked.lifetime, max_lifetime)
    yield from audience_refusals(asked.audiences)
    yield from tool_refusals(asked.tools)
