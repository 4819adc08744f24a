"""IssueToken: mints a user-tier token with the requested authority."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from libs.common.auth.authority import USER, Authority
from libs.common.errors import Violation
from services.authz.domain.errors import grant_refused
from services.authz.domain.model import IssuedToken, Minting, TokenRequest
from services.authz.domain.tokens.grants import (
    ConstraintCost,
    audience_violations,
    lifetime_violations,
    parse_constraints,
    tool_violations,
)
from services.authz.domain.tokens.minter import TokenMinter

DEFAULT_LIFETIME = 3600
DEFAULT_DEPTH = 3


@dataclass(frozen=True)
class IssueToken:
    """Issues root tokens, within the issuer's limits."""

    minter: TokenMinter
    audience: str
    max_lifetime: int
    cost_of: ConstraintCost

    async def execute(self, request: TokenRequest) -> IssuedToken:
        """Return the token. Raises INVALID_REQUEST for claims that cannot be granted."""
        violations = [*request_violations(request, self.max_lifetime)]
        if violations:
            raise grant_refused(violations)
        return await self.minter.mint_requested(self._authority(request), minting=Minting.ISSUED)

    def _authority(self, request: TokenRequest) -> Authority:
        now = self.minter.now()
        # Times are whole seconds. Rounded down, so that no token outlives the requested lifetime.
        lifetime = min(DEFAULT_LIFETIME, self.max_lifetime) if request.lifetime is None else int(request.lifetime)
        return Authority(
            subject=request.subject,
            tier=USER,
            tools=request.tools,
            scopes=frozenset(request.scopes),
            resources=request.resources,
            argument_constraints=parse_constraints(request.argument_constraints, self.cost_of),
            budget=request.budget,
            depth=DEFAULT_DEPTH if request.depth is None else request.depth,
            audiences=request.audiences or (self.audience,),
            not_before=now,
            expires_at=now + lifetime,
            tenant=request.tenant,
            trust_level=request.trust_level,
            groups=request.groups,
            session_id=request.session_id,
            confirmation=request.confirmation,
        )


def request_violations(request: TokenRequest, max_lifetime: int) -> Iterator[Violation]:
    """Yield the problems of a request that the rules of the contract cannot express."""
    if not request.tools and not request.scopes:
        yield Violation("tools", "grant.empty", "a token must grant a tool or a scope")
    yield from lifetime_violations(request.lifetime, max_lifetime)
    yield from audience_violations(request.audiences)
    yield from tool_violations(request.tools)
