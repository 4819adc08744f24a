"""Deriving: what a child would hold, from what the parent holds and the part of it that is asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from libs.common.auth.authority import Authority, exceeded
from libs.common.auth.identity import Budget, Identity
from libs.common.errors import Violation
from services.authz.domain.errors import authority_exceeded, grant_refused, parent_over
from services.authz.domain.model import IssuedToken, Part
from services.authz.domain.tokens.grants import Compiles, audience_refusals, read_constraints, tool_refusals
from services.authz.domain.tokens.mint import Mint


@dataclass(frozen=True)
class Derive:
    """Mints children. Whatever is asked, a child is a subset of its parent in every dimension, or there is none."""

    mint: Mint
    compiles: Compiles

    async def __call__(self, parent: Identity, part: Part, *, tier: str, agent: str, depth: int) -> IssuedToken:
        """Return the child. Raises INVALID_REQUEST for what no token may carry, and AUTHORITY_EXCEEDED with every dimension in which
        the parent holds less than was asked."""
        violations = [*refusals(parent, part)]
        if violations:
            raise grant_refused(violations)
        child = self._child(parent.authority, part, tier=tier, agent=agent, depth=depth)
        violations = exceeded(child, parent.authority)
        if violations:
            raise authority_exceeded(violations)
        return await self.mint.asked(child, parent)

    def _child(self, parent: Authority, part: Part, *, tier: str, agent: str, depth: int) -> Authority:
        begin, end = self._times(parent, part)
        constraints = read_constraints(
            part.argument_constraints,
            self.compiles,
            inherited=parent.argument_constraints,
            path="part.argument_constraints",
        )
        return Authority(
            subject=parent.subject,
            tier=tier,
            agent=agent,
            tools=part.tools or parent.tools,
            scopes=frozenset(part.scopes),
            resources=part.resources or parent.resources,
            argument_constraints=constraints,
            budget=_budget(part.budget, parent.budget),
            depth=depth,
            audiences=part.audiences or parent.audiences,
            not_before=begin,
            expires_at=end,
            tenant=parent.tenant,
            trust_level=parent.trust_level if part.trust_level is None else part.trust_level,
            groups=part.groups or parent.groups,
            session_id=part.session_id or parent.session_id,
            confirmation=part.confirmation,
        )

    def _times(self, parent: Authority, part: Part) -> tuple[int, int]:
        now, limit = self.mint.now(), int(parent.expires_at)
        if limit <= now:
            # It is let in for a little longer than it holds, but nothing new may come of it.
            raise parent_over()
        # A parent may begin a moment after now, as far as clocks differ. Rounding never lets a child begin earlier.
        begin = max(now, math.ceil(parent.not_before))
        return begin, limit if part.lifetime is None else now + int(part.lifetime)


def refusals(parent: Identity, part: Part) -> Iterator[Violation]:
    """Yield everything about a part that no token may carry, whatever its parent holds."""
    if not (part.tools or parent.tools or part.scopes):
        yield Violation("part.tools", "grant.empty", "a token must grant a tool or a scope")
    if part.lifetime is not None and part.lifetime < 1:
        yield Violation("part.lifetime", "lifetime.limit", "must be at least a second")
    for violation in (*audience_refusals(part.audiences), *tool_refusals(part.tools)):
        yield Violation(f"part.{violation.path}", violation.rule, violation.message)


def _budget(asked: Budget, parent: Budget) -> Budget:
    """Return what was asked, and the parent's bound where nothing was asked."""
    return Budget(
        calls=parent.calls if asked.calls is None else asked.calls,
        cost_micros=parent.cost_micros if asked.cost_micros is None else asked.cost_micros,
        running_ms=parent.running_ms if asked.running_ms is None else asked.running_ms,
    )
