"""Derives child tokens: computes the child's authority from the parent's and the requested attenuation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from libs.common.auth.authority import AGENT, Authority, exceeded
from libs.common.auth.identity import Budget, Identity
from libs.common.errors import Violation
from services.authz.domain.errors import authority_exceeded, grant_refused, parent_expired
from services.authz.domain.model import Attenuation, IssuedToken, Minting
from services.authz.domain.tokens.grants import ConstraintCost, audience_violations, parse_constraints, tool_violations
from services.authz.domain.tokens.minter import TokenMinter


@dataclass(frozen=True)
class TokenDeriver:
    """Mints child tokens. A child is a subset of its parent in every dimension, or it is refused."""

    minter: TokenMinter
    cost_of: ConstraintCost

    async def derive(
        self, parent: Identity, attenuation: Attenuation, *, tier: str, agent: str, depth: int
    ) -> IssuedToken:
        """Return the child. Raises INVALID_REQUEST for invalid claims, and AUTHORITY_EXCEEDED with every dimension in
        which the child would exceed the parent."""
        violations = [*attenuation_violations(parent, attenuation)]
        if violations:
            raise grant_refused(violations)
        child = self._child(parent.authority, attenuation, tier=tier, agent=agent, depth=depth)
        violations = exceeded(child, parent.authority)
        if violations:
            raise authority_exceeded(violations)
        minting = Minting.DELEGATED if tier == AGENT else Minting.NARROWED
        return await self.minter.mint_requested(child, parent, minting=minting)

    def _child(self, parent: Authority, attenuation: Attenuation, *, tier: str, agent: str, depth: int) -> Authority:
        begin, end = self._times(parent, attenuation)
        constraints = parse_constraints(
            attenuation.argument_constraints,
            self.cost_of,
            inherited=parent.argument_constraints,
            path="part.argument_constraints",
        )
        return Authority(
            subject=parent.subject,
            tier=tier,
            agent=agent,
            tools=attenuation.tools or parent.tools,
            scopes=frozenset(attenuation.scopes),
            resources=attenuation.resources or parent.resources,
            argument_constraints=constraints,
            budget=_budget(attenuation.budget, parent.budget),
            depth=depth,
            audiences=attenuation.audiences or parent.audiences,
            not_before=begin,
            expires_at=end,
            tenant=parent.tenant,
            trust_level=parent.trust_level if attenuation.trust_level is None else attenuation.trust_level,
            groups=attenuation.groups or parent.groups,
            session_id=attenuation.session_id or parent.session_id,
            confirmation=attenuation.confirmation,
        )

    def _times(self, parent: Authority, attenuation: Attenuation) -> tuple[int, int]:
        now, limit = self.minter.now(), int(parent.expires_at)
        if limit <= now:
            # Verifiers accept it within the clock skew, but nothing may be derived from it.
            raise parent_expired()
        # A parent may start after now because of clock skew. A child never starts before its parent.
        begin = max(now, math.ceil(parent.not_before))
        return begin, limit if attenuation.lifetime is None else now + int(attenuation.lifetime)


def attenuation_violations(parent: Identity, attenuation: Attenuation) -> Iterator[Violation]:
    """Yield the problems of an attenuation that do not depend on the parent's authority."""
    if not (attenuation.tools or parent.tools or attenuation.scopes):
        yield Violation("part.tools", "grant.empty", "a token must grant a tool or a scope")
    if attenuation.lifetime is not None and attenuation.lifetime < 1:
        yield Violation("part.lifetime", "lifetime.limit", "must be at least a second")
    for violation in (*audience_violations(attenuation.audiences), *tool_violations(attenuation.tools)):
        yield Violation(f"part.{violation.path}", violation.rule, violation.message)


def _budget(requested: Budget, parent: Budget) -> Budget:
    """Return the requested budget, with the parent's value where none is requested."""
    return Budget(
        calls=parent.calls if requested.calls is None else requested.calls,
        cost_micros=parent.cost_micros if requested.cost_micros is None else requested.cost_micros,
        running_ms=parent.running_ms if requested.running_ms is None else requested.running_ms,
    )
